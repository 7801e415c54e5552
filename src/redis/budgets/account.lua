-- What is left of one budget, of one caller or of all. Every script about budgets
-- begins with this.
--
-- KEYS[1]  a hash:
--          used      what was charged and has not come back; above the limit, a debt
--          reserved  what the leases hold together
--          tick      when something came back last, or was first used
--          amount, every   how it came back then
--          name      what the budget is called, for people who look at it
-- KEYS[2]  a sorted set of leases, `id:amount`, by when they end
-- KEYS[3]  a sorted set of leases that ended before they were settled, and of those,
--          `settled:` before them, of which a reservation may arrive that was settled
--          already, by when they are forgotten
-- ARGV[1]  the limit
-- ARGV[2], ARGV[3]  this much comes back each time; how long that takes, or 0: never
-- ARGV[4]  the name
--
-- Times are microseconds of the server's clock, so that all its clients agree.

local account, leases, ended = KEYS[1], KEYS[2], KEYS[3]
local limit, amount, every = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

-- The largest number that is exact here.
local MAX = 9007199254740991
-- For how long a lease that has ended can be settled: a day.
local REMEMBERED = 86400000000
-- No key has to live longer: ten years.
local FOREVER = 315360000000000

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local before = redis.call('HMGET', account, 'used', 'reserved', 'tick', 'amount', 'every')
local used = tonumber(before[1] or 0)
local reserved = tonumber(before[2] or 0)
-- Another server that has taken over can have another clock.
local tick = math.min(tonumber(before[3] or now), now)

local function text(number)
  return string.format('%.0f', number)
end

-- What a lease is called that shall not be made again.
local function settled(lease)
  return 'settled:' .. lease
end

-- What has come back since the last tick, debts first. Only whole ticks move it, so
-- that no time is lost.
local function come_back(amount, every)
  if every == 0 then
    tick = now
    return
  end
  local ticks = math.floor((now - tick) / every)
  used = math.max(0, used - ticks * amount)
  tick = tick + ticks * every
end

-- Until now it came back as it was set then; from now on, as it is set here.
local every_before = tonumber(before[5] or every)
come_back(tonumber(before[4] or amount), every_before)
if every ~= every_before then
  tick = math.max(tick, now - every)
end
come_back(amount, every)

-- What leases hold whose process did not come back.
for _, lease in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', text(now), 'LIMIT', 0, 1000)) do
  redis.call('ZREM', leases, lease)
  redis.call('ZADD', ended, text(now + REMEMBERED), lease)
  reserved = math.max(0, reserved - tonumber(string.match(lease, ':(%d+)$')))
end
redis.call('ZREMRANGEBYSCORE', ended, '-inf', text(now))

-- The time begins to count with the first use of what was full.
if used == 0 and reserved == 0 then
  tick = now
end

local function left()
  return limit - used - reserved
end

-- The keys go by themselves when they say nothing more: nothing is used or held. What
-- never comes back stays.
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
