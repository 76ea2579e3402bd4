-- Counts a failed credential of an address. Returns the remaining milliseconds of its lockout, or 0.
-- KEYS: the lockout of the address, its failures, the locked addresses, the addresses with failures.
-- ARGV: the failures that lock an address out, the microseconds for which a failure counts, the milliseconds of a lockout, the
-- address, the prefix of the keys of failures, the largest number of locked addresses and of addresses with failures.
-- The script keeps the times of as many failures as lock an address out.

local blocked = redis.call('PTTL', KEYS[1])
if blocked > 0 then
  redis.call('INCR', KEYS[1])
  return blocked
end

-- A call removes only a few expired addresses, so that no other call waits long.
local function forget_expired(addresses, until_us)
  for _, address in ipairs(redis.call('ZRANGEBYSCORE', addresses, '-inf', until_us, 'LIMIT', 0, 3)) do
    redis.call('ZREM', addresses, address)
  end
end

local now, failures, window = now_us(), tonumber(ARGV[1]), tonumber(ARGV[2])
local address, most = ARGV[4], tonumber(ARGV[6])
local function timestamp(us)
  return string.format('%.0f', us)
end
local kept = redis.call('RPUSH', KEYS[2], timestamp(now))
if kept > failures then
  redis.call('LTRIM', KEYS[2], -failures, -1)
end
if kept >= failures and now - redis.call('LINDEX', KEYS[2], 0) < window then
  forget_expired(KEYS[3], timestamp(now))
  if redis.call('ZCARD', KEYS[3]) < most then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
    redis.call('ZADD', KEYS[3], timestamp(now + ARGV[3] * 1000), address)
    redis.call('DEL', KEYS[2])
    redis.call('ZREM', KEYS[4], address)
    return tonumber(ARGV[3])
  end
end
redis.call('PEXPIRE', KEYS[2], math.ceil(window / 1000))
redis.call('ZADD', KEYS[4], timestamp(now), address)
forget_expired(KEYS[4], timestamp(now - window))
if redis.call('ZCARD', KEYS[4]) > most then
  redis.call('DEL', ARGV[5] .. redis.call('ZPOPMIN', KEYS[4])[1])
end
return 0
