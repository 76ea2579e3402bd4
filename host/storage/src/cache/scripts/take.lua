-- KEYS: the bucket. ARGV: requests per minute. Returns the decision.

local now = now_us()
local decision, arrival = decide(KEYS[1], tonumber(ARGV[1]), now)
if arrival then
  count(KEYS[1], arrival, now)
end
return decision
