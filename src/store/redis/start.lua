-- What all the scripts start with: the time, how long things last, and what is asked of which quotas.
--
-- Numbers are microseconds on the server's clock unless said otherwise.

-- Clocks may drift apart by one part in so many.
local DRIFT = 50000

-- The longest wait.
local HORIZON = 10 * 365 * 24 * 3600 * 1000000

-- No record may lie further ahead than this: a wait, a window and some more.
local SANE = 3 * HORIZON

local function server_time()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local now = server_time()

-- How long a key has to live, in milliseconds.
local function lifetime(expires, now)
  return math.max(math.ceil((expires - now) / 1000), 0) + 1
end

-- Quotas, from a place in a text on: for each the name of its algorithm and three numbers.
local function read_quotas(text, place)
  local quotas = {}
  while place <= #text do
    local name, a, b, c, behind = struct.unpack('<sI8I8I8', text, place)
    quotas[#quotas + 1], place = { name, a, b, c }, behind
  end
  return quotas
end
