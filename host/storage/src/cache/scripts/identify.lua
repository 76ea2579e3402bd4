-- KEYS: the address's lockout and bucket, the record and its tombstone; empty where nothing is asked for.
-- ARGV: the address's requests per minute, what a user's bucket begins with.
-- Returns: milliseconds shut out, the address's decision, the record (empty if it is buried), the user's decision.

if KEYS[1] ~= '' then
  local blocked = redis.call('PTTL', KEYS[1])
  if blocked > 0 then
    return { blocked, false, false, false }
  end
end

local now = now_us()
local address, address_arrival = false, nil
if KEYS[2] ~= '' then
  address, address_arrival = decide(KEYS[2], tonumber(ARGV[1]), now)
  if not address_arrival then
    return { 0, address, false, false }
  end
end

local record, user = false, false
if KEYS[3] ~= '' then
  if redis.call('EXISTS', KEYS[4]) == 1 then
    record = ''
  else
    record = redis.call('GET', KEYS[3])
  end
end
if record and record ~= '' then
  local limit, length, start = string.match(record, '^(%d+) (%d+) ()')
  if limit ~= '0' then
    local bucket = ARGV[2] .. string.sub(record, start, start + length - 1)
    local arrival
    user, arrival = decide(bucket, tonumber(limit), now)
    if not arrival then
      return { 0, address, record, user }
    end
    count(bucket, arrival, now)
  end
end
if address_arrival then
  count(KEYS[2], address_arrival, now)
end
return { 0, address, record, user }
