-- Reserves a part of a caller's share for an item.
--
-- KEYS[1]  a sorted set of the caller's items, `id:bytes`, with their expiry times in milliseconds
--          of the server's clock; also contains `total`, whose score is the negative total size
-- ARGV[1]  the item, `id:bytes`
-- ARGV[2]  the lifetime of the item, in milliseconds
-- ARGV[3]  the maximum total size of the caller's items, in bytes
-- ARGV[4]  `evict` to make room by removing the caller's oldest items
--
-- Returns {1, evicted items ...}, or {0} if there is no room.

local items, item, ttl, max = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local function bytes(of)
  return tonumber(string.match(of, ':(%d+)$'))
end

local function total()
  return -tonumber(redis.call('ZSCORE', items, 'total') or '0')
end

local function remove(removed)
  redis.call('ZREM', items, removed)
  redis.call('ZINCRBY', items, bytes(removed), 'total')
end

-- The request is repeated if its response was lost.
if redis.call('ZSCORE', items, item) then
  return {1}
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', items, '(0', string.format('%.0f', now))) do
  remove(expired)
end

local answer = {1}
while total() + bytes(item) > max do
  local oldest = redis.call('ZRANGEBYSCORE', items, '(0', '+inf', 'LIMIT', 0, 1)[1]
  if ARGV[4] ~= 'evict' or not oldest then
    return {0}
  end
  remove(oldest)
  table.insert(answer, oldest)
end

redis.call('ZADD', items, string.format('%.0f', now + ttl), item)
redis.call('ZINCRBY', items, -bytes(item), 'total')
-- The key must not expire before any item. Replicas can use different lifetimes.
redis.call('PEXPIRE', items, string.format('%.0f', math.max(ttl, redis.call('PTTL', items))))
return answer
