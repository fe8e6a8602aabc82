-- Reserves slots for one key or for many, each as if in a call of its own.
--
-- KEYS     for each key its free slots, then for each key the state of each quota
-- ARGV     how many keys; then for each group of keys that have them in common, its terms (see read_terms); then for each
--          key of the group its asks: the time before which no slot may lie, then for each run of like
--          requests how many, the cost of each, the longest wait; one of -1 asks only how long it would be
-- Returns  the server's time; then for each key how many more may depart now, the time until all may, and
--          runs of
--            n > 0, at, record, step, receipt...  n requests have this slot; each is recorded a step later
--                                                 than the one before. No step if n is 1
--            n < 0, wait                          -n requests would have to wait so long
--          or, for one whose state cannot be read, -1 and the reason; integers in microseconds

local answer, size = { now }, 1
local terms, quotas, ledger

-- What a group has in common: how many keys; the margin, the least margin with which a free slot is of
-- use, what the policy asks of it at least, how long the answer takes, how much the margin grows within a
-- burst; then for each quota the name of its algorithm and three numbers.
local function read_terms(text)
  if terms and terms.text == text then return end
  local keys, margin, least_margin, floor, round_trip, stagger, place = struct.unpack('<I4I8I8I8I8I8', text)
  terms = {
    text = text, keys = keys, margin = margin, least_margin = least_margin, floor = floor,
    round_trip = round_trip, stagger = stagger,
  }
  quotas = read_quotas(text, place)
end

local function reserve(states, free, asks)
  ledger = ledger or define_ledger()
  ledger.load(states, free, quotas, now)
  ledger.agree(terms)
  local place = size + 2
  local x, position = struct.unpack('<I8', asks)
  x = math.max(now, x)
  while position <= #asks do
    local count, cost, max_wait
    count, cost, max_wait, position = struct.unpack('<I4I4i8', asks, position)
    max_wait = math.min(max_wait, ledger.longest_wait)
    while count > 0 do
      local slot, taken, step = ledger.reserve(x, cost, max_wait, count)
      if not slot then
        answer[place + 1], answer[place + 2] = -count, step
        place = place + 2
        break
      end
      x, count = slot[1], count - taken
      answer[place + 1], answer[place + 2], answer[place + 3] = taken, x, slot[2]
      place = place + 3
      if taken > 1 then
        place = place + 1
        answer[place] = step
      end
      for i = 4, #slot do
        place = place + 1
        answer[place] = slot[i]
      end
    end
  end
  ledger.save()
  answer[size + 1], answer[size + 2] = ledger.remaining(), ledger.expires() - now
  size = place
end

local function reason(thrown)
  return type(thrown) == 'table' and thrown.err or tostring(thrown)
end

local count = tonumber(ARGV[1])
local some_free = redis.call('EXISTS', unpack(KEYS, 1, count)) > 0
local key, state, place = 0, count, 2
while key < count do
  read_terms(ARGV[place])
  local only = quotas[2] == nil and quotas[1]
  for i = 1, terms.keys do
    key = key + 1
    local free, asks, longer = KEYS[key], ARGV[place + i], nil
    local has_free = some_free and redis.call('EXISTS', free) == 1
    if only and reserve_in_log and not has_free then
      longer = reserve_in_log(answer, size, terms, KEYS[state + 1], only[2], only[3], asks)
    end
    if longer then
      size = longer
    else
      local states = { unpack(KEYS, state + 1, state + #quotas) }
      local done, thrown = pcall(reserve, states, free, asks)
      if not done then
        answer[size + 1], answer[size + 2] = -1, reason(thrown)
        size = size + 2
      end
    end
    state = state + #quotas
  end
  place = place + 1 + terms.keys
end
-- What was begun and given up.
for i = #answer, size + 1, -1 do answer[i] = nil end
return answer
