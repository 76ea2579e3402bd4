-- Identifies a caller. KEYS: the lockout and the bucket of the address, the record and its tombstone, the epoch.
-- ARGV: requests per minute of the address, 0 without one; the burst of unauthenticated requests; the prefixes of users' buckets
-- and of users' tombstones; the server's id; 1 if a record is requested.
-- Returns: milliseconds of the lockout, the decision for the address, the record (empty if it has a tombstone), the decision for
-- the user, 1 if the user has a tombstone, the number of the epoch.

local current = string.match(epoch(KEYS[5], ARGV[5]), '^%d+')
local epoch_number = tonumber(current)

local record, user_id, limit, doubtful = false, nil, nil, 0
if ARGV[6] == '1' then
  if redis.call('EXISTS', KEYS[4]) == 1 then
    record = ''
  else
    local kept = redis.call('GET', KEYS[3])
    local kept_in, start = string.match(kept or '', '^(%d+) ()')
    if kept_in == current then
      record = string.sub(kept, start)
    end
  end
end
if record and record ~= '' then
  local length, start
  limit, length, start = string.match(record, '^(%d+) (%d+) ()')
  user_id = string.sub(record, start, start + length - 1)
  doubtful = redis.call('EXISTS', ARGV[4] .. user_id)
end

if ARGV[1] ~= '0' and not user_id then
  local blocked = redis.call('PTTL', KEYS[1])
  if blocked > 0 then
    redis.call('INCR', KEYS[1])
    return { blocked, false, false, false, 0, epoch_number }
  end
end

local now = now_us()
local address, address_arrival = false, nil
if ARGV[1] ~= '0' then
  local most = user_id and ARGV[1] or ARGV[2]
  address, address_arrival = decide(KEYS[2], tonumber(ARGV[1]), tonumber(most), now)
  if not address_arrival then
    return { 0, address, false, false, 0, epoch_number }
  end
end

local user = false
if user_id and doubtful == 0 and limit ~= '0' then
  local bucket = ARGV[3] .. user_id
  local arrival
  user, arrival = decide(bucket, tonumber(limit), tonumber(limit), now)
  if not arrival then
    return { 0, address, record, user, 0, epoch_number }
  end
  count(bucket, arrival, now)
end
if address_arrival then
  count(KEYS[2], address_arrival, now)
end
return { 0, address, record, user, doubtful, epoch_number }
