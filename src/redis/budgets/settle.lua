-- Ends a lease, and charges what it really was. Told twice, it does nothing.
--
-- ARGV[5]  the lease, `id:amount`
-- ARGV[6]  what it really was
-- ARGV[7]  1 if the reservation may still arrive, for the first time or once more
-- ARGV[8]  the most that counts as used of what comes back

local lease, actual = ARGV[5], tonumber(ARGV[6])

if redis.call('ZREM', leases, lease) == 1 then
  reserved = math.max(0, reserved - tonumber(string.match(lease, ':(%d+)$')))
  used = used + actual
elseif redis.call('ZREM', ended, lease) == 1 then
  used = used + actual
end
if every > 0 then
  used = math.min(used, tonumber(ARGV[8]))
end
if ARGV[7] == '1' then
  -- It can be on its way, on a connection that was lost: for a minute it is refused.
  redis.call('ZADD', ended, text(now + 60000000), settled(lease))
end
save()
