-- KEYS: a key of its own. Fails if the server refuses the writes that a request's scripts make.

redis.call('SET', KEYS[1], '', 'PX', 1000)
