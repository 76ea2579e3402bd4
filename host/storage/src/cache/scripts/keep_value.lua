-- KEYS: the value. ARGV: the value that the reader saw, empty for none; the new value; its lifetime in milliseconds.
-- Returns 1 if the new value was stored, because the value had not changed since the read.

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
