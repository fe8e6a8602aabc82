-- GCRA: one number, the time at which the next request is due if all come evenly.
-- KEYS: the number. ARGV: what lies between two requests that come evenly, and how much too early
-- one may come, in microseconds.
-- Returns 1 if the request may depart, or 0, and then nothing is recorded.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local due = math.max(redis.call('GET', KEYS[1]) or 0, now)
if due - now > tonumber(ARGV[2]) then return 0 end
due = due + ARGV[1]
redis.call('SET', KEYS[1], string.format('%.0f', due), 'PX', math.ceil((due - now) / 1000))
return 1
