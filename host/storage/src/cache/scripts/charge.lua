-- KEYS: the bucket. ARGV: the rate per minute, and the number to count whether or not the rate allows it.

local now = now_us()
local before = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
count(KEYS[1], before + math.ceil(60000000 / tonumber(ARGV[1])) * tonumber(ARGV[2]), now)
return 1
