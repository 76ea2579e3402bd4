-- KEYS: the locked addresses. ARGV: the largest number of results, the prefix of lockouts.
-- Returns address, failures and remaining milliseconds of each lockout, the longest first.

local found = {}
for _, address in ipairs(redis.call('ZREVRANGE', KEYS[1], 0, ARGV[1] - 1)) do
  local key = ARGV[2] .. address
  local left = redis.call('PTTL', key)
  if left > 0 then
    found[#found + 1] = { address, tonumber(redis.call('GET', key)), left }
  end
end
return found
