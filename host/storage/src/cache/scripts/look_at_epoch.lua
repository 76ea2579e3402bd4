-- KEYS: the epoch. ARGV: the server's own id; 1 to begin a new epoch in any case; the channel of ended records, the message for a
-- new epoch. Begins a new epoch if another server began the current one.

local known = epoch(KEYS[1], ARGV[1])
local number, server = string.match(known, '^(%d+) ?(.*)$')
if server ~= ARGV[1] or ARGV[2] == '1' then
  local next = math.max(now_us(), tonumber(number) + 1)
  redis.call('SET', KEYS[1], string.format('%.0f', next) .. ' ' .. ARGV[1])
  redis.pcall('PUBLISH', ARGV[3], ARGV[4])
end
