-- Makes an item count against its caller's share no longer than a while from now.
--
-- KEYS[1]  the caller's items, as `share.lua` describes them
-- ARGV[1]  the item, `id:bytes`
-- ARGV[2]  the while, in milliseconds

local clock = redis.call('TIME')
local expiry = clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[2]
local before = redis.call('ZSCORE', KEYS[1], ARGV[1])
if before and tonumber(before) > expiry then
  redis.call('ZADD', KEYS[1], string.format('%.0f', expiry), ARGV[1])
end
