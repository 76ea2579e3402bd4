-- Stores a large value. KEYS: the value, the names of all large values. ARGV: the value, its lifetime in milliseconds, its name,
-- the prefix of the keys of large values, the largest number of large values.

local now, most = now_us(), tonumber(ARGV[5])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2] * 1000), ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
-- A call removes only a few names, so that no other call waits long.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, 3)) do
  redis.call('ZREM', KEYS[2], name)
end
for _ = 1, math.min(redis.call('ZCARD', KEYS[2]) - most, 3) do
  redis.call('DEL', ARGV[4] .. redis.call('ZPOPMIN', KEYS[2])[1])
end
