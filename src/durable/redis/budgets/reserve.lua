-- Reserves an amount as a lease.
--
-- ARGV[5]  the lease, `id:amount`
-- ARGV[6]  the amount; 0 succeeds if any amount remains
-- ARGV[7]  the duration of the lease, in microseconds
--
-- Returns {1, 0} if the amount was reserved. Otherwise, returns {0, microseconds until a retry can
-- succeed}, or {0, -1} if this time is unknown.

local lease, wanted = ARGV[5], tonumber(ARGV[6])

local function answer(...)
  save()
  return {...}
end

-- The request is repeated if its response was lost.
if redis.call('ZSCORE', leases, lease) then
  return answer(1, 0)
end
-- The lease was already settled or has expired, so this is a late copy of the request.
if redis.call('ZSCORE', ended, lease) or redis.call('ZSCORE', ended, settled(lease)) then
  return answer(0, -1)
end

local missing = math.max(wanted, 1) - left()
if missing <= 0 then
  reserved = reserved + wanted
  redis.call('ZADD', leases, text(now + ARGV[7]), lease)
  return answer(1, 0)
end
-- Assumes that all other leases are charged in full. They may also be released earlier.
if every > 0 and math.max(wanted, 1) <= limit then
  return answer(0, tick + math.ceil(missing / amount) * every - now)
end
return answer(0, -1)
