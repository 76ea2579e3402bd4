-- KEYS: the tombstone. ARGV: its lifetime in milliseconds, the channel of ended records, the message for it.

redis.call('SET', KEYS[1], '', 'PX', ARGV[1])
-- Nodes that must not use the channel keep no records.
redis.pcall('PUBLISH', ARGV[2], ARGV[3])
