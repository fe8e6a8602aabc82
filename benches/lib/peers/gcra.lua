-- GCRA: one number, the theoretical arrival time of the next request.
-- KEYS: the number. ARGV: interval between requests, and tolerance for early requests, both in microseconds.
-- Returns 1 if the request may depart; or else 0, and records nothing.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local due = math.max(redis.call('GET', KEYS[1]) or 0, now)
if due - now > tonumber(ARGV[2]) then return 0 end
due = due + ARGV[1]
redis.call('SET', KEYS[1], string.format('%.0f', due), 'PX', math.ceil((due - now) / 1000))
return 1
