-- Shortens the time for which an item counts towards its caller's share.
--
-- KEYS[1]  the caller's items, as described in `share.lua`
-- ARGV[1]  the item, `id:bytes`
-- ARGV[2]  the maximum time from now, in milliseconds

local clock = redis.call('TIME')
local expiry = clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[2]
local before = redis.call('ZSCORE', KEYS[1], ARGV[1])
if before and tonumber(before) > expiry then
  redis.call('ZADD', KEYS[1], string.format('%.0f', expiry), ARGV[1])
end
