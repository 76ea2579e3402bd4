-- Functions that the scripts share: the time of Redis, and the decision of `Rate::decide`. A number of microseconds since
-- 1970 is exact in a double. Lua would print it with 14 digits, so the script formats it.

local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Returns the epoch. If a flush removed the epoch, this call begins a new one. The number of an epoch is its start time.
local function epoch(key, server)
  local known = redis.call('GET', key)
  if not known then
    known = string.format('%.0f', now_us()) .. ' ' .. server
    redis.call('SET', key, known)
  end
  return known
end

local function decide(key, limit, most, now)
  local interval = math.ceil(60000000 / limit)
  local burst = interval * most
  local before = math.max(tonumber(redis.call('GET', key) or 0), now)
  local after = before + interval
  if after - now > burst then
    return { 0, limit, 0, before - now, after - now - burst }, nil
  end
  return { 1, limit, math.floor((burst - (after - now)) / interval), after - now, 0 }, after
end

local function count(key, arrival, now)
  redis.call('SET', key, string.format('%.0f', arrival), 'PX', math.ceil((arrival - now) / 1000))
end
