-- Gives what was put, if it belongs to whoever asks.
--
-- KEYS[1]  the SHA-256 of whom it belongs to, and then what was put; once it was taken,
--          by whom in the place of the SHA-256
-- ARGV[1]  the SHA-256 of who asks
-- ARGV[2]  `taken:` and what tells this taking from all others, as long as a SHA-256;
--          empty if it is not taken
-- ARGV[3]  how many bytes may be given, with the SHA-256 before them
-- ARGV[4]  how long the server keeps it after it was taken, in milliseconds
--
-- Gives {0} if there is nothing, {1} if it is another's, or {2, what was put}.

-- Whatever else can write here may have put something of any size.
if redis.call('STRLEN', KEYS[1]) > tonumber(ARGV[3]) then
  return {0}
end
local owner = redis.call('GETRANGE', KEYS[1], 0, 31)
-- It is asked again, since the answer was lost.
local is_again = owner ~= '' and owner == ARGV[2]
if owner == '' or (string.sub(owner, 1, 6) == 'taken:' and not is_again) then
  return {0}
end
-- It stays, since it belongs to somebody else.
if owner ~= ARGV[1] and not is_again then
  return {1}
end
local kept = redis.call('GETRANGE', KEYS[1], 32, -1)
if ARGV[2] ~= '' and not is_again then
  -- A server that is full may refuse to write it.
  local written = redis.pcall('SETRANGE', KEYS[1], 0, ARGV[2])
  if type(written) == 'table' then
    redis.call('DEL', KEYS[1])
  elseif redis.call('PTTL', KEYS[1]) > tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
  end
end
return {2, kept}
