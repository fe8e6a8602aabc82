-- Reserves slots for one key or for many, each as if in a call of its own.
--
-- KEYS     for each key what stands aside, then for each key the state of each quota
--          of a strict policy, then when the store was born
-- ARGV     how many keys; 1 if these are many short logs, each of another key; then for each group of keys
--          that have them in common, terms and asks. The terms: how many keys they are; the margin, the
--          least margin with which a free slot is of use, what the policy asks of it at least, how long the
--          answer takes, how much the margin grows within a burst; for each quota the name of its algorithm
--          and three numbers. The asks: the time before which no slot may lie; of a strict policy, when the life
--          began that is known, and its version, or zeros, how long a key is to rest whose state was lost, by
--          how much the clock has to be set back for that, which process asks, and at which version slots were
--          last handed out to it, or zeros; then for each run of like requests how many, the cost of each, the
--          longest wait; one of -1 asks only how long it would be
-- Returns  the server's time; then for each key how many more may depart now, the time until all may, of a
--          strict policy 1 if its state was lost and all have to be told, else 0, when its life began and the
--          version, and runs of
--            n > 0, at, record, step, receipt...  n requests have this slot; each is recorded a step later
--                                                 than the one before. No step if n is 1
--            n < 0, wait                          -n requests would have to wait so long
--          or, for one whose state cannot be read, -1 and the reason; or, where all is as for the key
--          before it, -2. Integers in microseconds

--@born
local answer, size = { now }, 1
local keys_left = ARGV[1] + 0
local key, state, place = 0, keys_left, 3

-- The states of many logs, read at once; of what is no string, nothing.
local values = ARGV[2] == '1' and redis.call('MGET', unpack(KEYS, keys_left + 1))

-- Whether anything stands aside for any key, once numbers have asked for that: they have no mark as logs have.
local some_aside

-- The terms of the group.
local asks, keys, margin, least_margin, floor, earliest, stagger, quotas, only
-- What the first of the group got that found an empty log: where that stands in the answer, and what was
-- written.
local first_from, first_end, first_to, first_raw, first_life
local reserve

while keys_left > 0 do
  do
    local text, round_trip, name, a, b, c, behind = ARGV[place]
    asks = ARGV[place + 1]
    keys, margin, least_margin, floor, round_trip, stagger, name, a, b, c, behind =
      struct.unpack('<I4I8I8I8I8I8sI8I8I8', text)
    earliest, quotas = now + round_trip, { { name, a, b, c } }
    while behind <= #text do
      name, a, b, c, behind = struct.unpack('<sI8I8I8', text, behind)
      quotas[#quotas + 1] = { name, a, b, c }
    end
    only, first_raw = quotas[2] == nil and quotas[1], nil
  end
  for i = 1, keys do
    local done = false
    key = key + 1
--@common_case
    if not done then
      if not reserve then
--@ledger
        function reserve(states, aside, asks)
          ledger.load(states, aside, quotas, now)
          local place, is_granted = size + @head, false
          local x, position = struct.unpack('<I8', asks)
--@doubt
          ledger.agree(margin, least_margin, floor, earliest, stagger)
          x = math.max(now, x)
          while position <= #asks do
            local count, cost, max_wait
            count, cost, max_wait, position = struct.unpack('<I4I4i8', asks, position)
            max_wait = math.min(max_wait, ledger.longest_wait)
            while count > 0 do
              local slot, taken, step_or_wait = ledger.reserve(x, cost, max_wait, count)
              if not slot then
                answer[place + 1], answer[place + 2] = -count, step_or_wait
                place = place + 2
                break
              end
              x, count, is_granted = slot[1], count - taken, true
              answer[place + 1], answer[place + 2], answer[place + 3] = taken, x, slot[2]
              place = place + 3
              if taken > 1 then
                place = place + 1
                answer[place] = step_or_wait
              end
              for j = 4, #slot do
                place = place + 1
                answer[place] = slot[j]
              end
            end
          end
--@live
          ledger.save()
          answer[size + 1], answer[size + 2] = ledger.remaining(), ledger.expires() - now
          size = place
        end
      end
      local states = { unpack(KEYS, state + 1, state + #quotas) }
      local is_answered, thrown = pcall(reserve, states, KEYS[key], asks)
      if not is_answered then
        answer[size + 1] = -1
        answer[size + 2] = type(thrown) == 'table' and thrown.err or tostring(thrown)
        size = size + 2
      end
    end
    state = state + #quotas
  end
  keys_left, place = keys_left - keys, place + 2
end
-- What was begun and given up.
for i = #answer, size + 1, -1 do answer[i] = nil end
return answer
