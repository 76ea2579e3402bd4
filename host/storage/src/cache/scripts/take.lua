-- KEYS: the bucket. ARGV: requests per minute. Returns the decision.

local now, limit = now_us(), tonumber(ARGV[1])
local decision, arrival = decide(KEYS[1], limit, limit, now)
if arrival then
  count(KEYS[1], arrival, now)
end
return decision
