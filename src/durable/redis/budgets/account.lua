-- Computes the remaining amount of a budget, which belongs to one caller or is shared by all
-- callers. This is the beginning of every script about budgets.
--
-- KEYS[1]  a hash:
--          used      the charged amount that was not refilled yet; above the limit, it is a debt
--          reserved  the total amount of all leases
--          tick      the time of the last refill, or of the first use
--          amount, every   the refill settings at that time
--          name      the name of the budget, for operators who inspect the data
-- KEYS[2]  a sorted set of leases, `id:amount`, with their expiry times
-- KEYS[3]  a sorted set with the times at which its entries are removed. An entry is a lease that
--          expired before it was settled, or `settled:` and a lease that was settled, but whose
--          reservation may still arrive
-- ARGV[1]  the limit
-- ARGV[2], ARGV[3]  the amount of each refill, and the interval between refills, or 0 if there
--          are no refills
-- ARGV[4]  the name
--
-- Times are in microseconds of the server's clock, so that all replicas agree.

local account, leases, ended = KEYS[1], KEYS[2], KEYS[3]
local limit, amount, every = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

-- The largest integer that Lua represents exactly.
local MAX = 9007199254740991
-- How long an expired lease can still be settled: one day.
local REMEMBERED = 86400000000
-- The maximum lifetime of a key: ten years.
local FOREVER = 315360000000000

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local before = redis.call('HMGET', account, 'used', 'reserved', 'tick', 'amount', 'every')
local used = tonumber(before[1] or 0)
local reserved = tonumber(before[2] or 0)
-- The tick may be in the future, because another server with another clock may have taken over.
local tick = math.min(tonumber(before[3] or now), now)

local function text(number)
  return string.format('%.0f', number)
end

-- Returns the entry for a settled lease, whose reservation must be rejected if it arrives later.
local function settled(lease)
  return 'settled:' .. lease
end

-- Applies all refills since the last tick. The tick moves by whole intervals, so that no part of
-- an interval is lost.
local function come_back(amount, every)
  if every == 0 then
    tick = now
    return
  end
  local ticks = math.floor((now - tick) / every)
  used = math.max(0, used - ticks * amount)
  tick = tick + ticks * every
end

-- Refills until now use the previous settings, and later refills use the current settings.
local every_before = tonumber(before[5] or every)
come_back(tonumber(before[4] or amount), every_before)
if every ~= every_before then
  tick = math.max(tick, now - every)
end
come_back(amount, every)

-- Releases the amounts of expired leases, which their processes have not settled.
for _, lease in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', text(now), 'LIMIT', 0, 1000)) do
  redis.call('ZREM', leases, lease)
  redis.call('ZADD', ended, text(now + REMEMBERED), lease)
  reserved = math.max(0, reserved - tonumber(string.match(lease, ':(%d+)$')))
end
redis.call('ZREMRANGEBYSCORE', ended, '-inf', text(now))

-- The first interval begins when a full budget is first used.
if used == 0 and reserved == 0 then
  tick = now
end

local function left()
  return limit - used - reserved
end

-- Stores the amounts. The keys expire when the budget is full again. The keys of a budget without
-- refills stay while an amount is used.
local function save()
  used = math.min(used, MAX)
  redis.call('HSET', account, 'used', text(used), 'reserved', text(reserved),
    'tick', text(tick), 'amount', text(amount), 'every', text(every), 'name', ARGV[4])
  if every == 0 and used > 0 then
    for _, key in ipairs(KEYS) do
      redis.call('PERSIST', key)
    end
    return
  end
  local until_when = now
  if used > 0 then
    until_when = tick + math.ceil(used / amount) * every
  end
  local held = redis.call('ZREVRANGE', leases, 0, 0, 'WITHSCORES')[2]
  if held then
    until_when = math.max(until_when, tonumber(held) + REMEMBERED)
  end
  local remembered = redis.call('ZREVRANGE', ended, 0, 0, 'WITHSCORES')[2]
  if remembered then
    until_when = math.max(until_when, tonumber(remembered))
  end
  until_when = math.ceil(math.min(until_when, now + FOREVER) / 1000) + 1
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIREAT', key, text(until_when))
  end
end
