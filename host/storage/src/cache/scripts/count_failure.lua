-- KEYS: the address's lockout and its failures. ARGV: failures that shut it out, microseconds in which
-- they count, milliseconds that it stays out. Returns the milliseconds that it is shut out, or 0.
-- Of the failures, as many times are kept as shut an address out.

local blocked = redis.call('PTTL', KEYS[1])
if blocked > 0 then
  return blocked
end
local now, failures, window = now_us(), tonumber(ARGV[1]), tonumber(ARGV[2])
local kept = redis.call('RPUSH', KEYS[2], string.format('%.0f', now))
if kept > failures then
  redis.call('LTRIM', KEYS[2], -failures, -1)
end
if kept >= failures and now - redis.call('LINDEX', KEYS[2], 0) < window then
  redis.call('SET', KEYS[1], '1', 'PX', ARGV[3])
  redis.call('DEL', KEYS[2])
  return tonumber(ARGV[3])
end
redis.call('PEXPIRE', KEYS[2], math.ceil(window / 1000))
return 0
