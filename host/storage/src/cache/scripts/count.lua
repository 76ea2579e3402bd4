-- Counts requests in limits: a request counts in all of them or in none.
-- KEYS: for each limit, its bucket and its number of leased requests.
-- ARGV: 1 to count a request, 0 only to charge; milliseconds after which leased requests lapse; for each limit, requests per
-- minute, requests or tokens to charge in any case, requests to lease beside this one, requests that may be leased at once.
-- Returns for each limit its decision and the number of leased requests.

local now, counts = now_us(), ARGV[1] == '1'
local decisions, arrivals, allowed = {}, {}, counts
for index = 1, #KEYS / 2 do
  local bucket, at = KEYS[2 * index - 1], 4 * index - 1
  local limit, charged = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  if charged > 0 then
    local before = math.max(tonumber(redis.call('GET', bucket) or 0), now)
    count(bucket, before + math.ceil(60000000 / limit) * charged, now)
  end
  if counts then
    decisions[index], arrivals[index] = decide(bucket, limit, limit, now)
    decisions[index][6] = 0
    allowed = allowed and arrivals[index] ~= nil
  end
end
if allowed then
  for index = 1, #decisions do
    local decision, arrival, at = decisions[index], arrivals[index], 4 * index - 1
    local wanted = math.min(tonumber(ARGV[at + 2]), decision[3])
    if wanted > 0 then
      local leases = KEYS[2 * index]
      local leased = tonumber(redis.call('GET', leases) or 0)
      wanted = math.max(math.min(wanted, tonumber(ARGV[at + 3]) - leased), 0)
      if wanted > 0 then
        redis.call('INCRBY', leases, wanted)
        if leased == 0 then
          redis.call('PEXPIRE', leases, ARGV[2])
        end
        arrival = arrival + math.ceil(60000000 / decision[2]) * wanted
        decision[3], decision[4], decision[6] = decision[3] - wanted, arrival - now, wanted
      end
    end
    count(KEYS[2 * index - 1], arrival, now)
  end
end
return decisions
