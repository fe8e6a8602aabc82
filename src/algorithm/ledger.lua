-- The quotas of one key, joined: twin of ledger.rs.
--
-- KEYS[1] holds the free slots (see free.lua), and is absent while there are none. KEYS[2] and on hold
-- one quota's state each.

-- How often quotas may push a time later until they settle for one that suits all but those that mind
-- how late it is.
local PATIENCE = 64

local ledger = {
  counters = {}, burst_at = 0, burst_size = 0,
  size = 3,  -- of a slot, its receipt included
}

function ledger.is_last(slot)
  local place = 4
  for _, counter in ipairs(ledger.counters) do
    if not counter:is_last(slot, place) then return false end
    place = place + counter.receipts
  end
  return true
end

function ledger.give_back(slot)
  local place = 4
  for _, counter in ipairs(ledger.counters) do
    counter:give_back(slot, place)
    place = place + counter.receipts
  end
end

-- Gives back slots in whose order nothing lies.
function ledger.give_back_all(slots)
  if ledger.size == 3 then
    for _, counter in ipairs(ledger.counters) do counter:give_back_all(slots) end
  else
    for _, slot in ipairs(slots) do ledger.give_back(slot) end
  end
end

-- Reads the rules from ARGV[1] on (how many; name and three numbers each) and the state that goes with
-- them; returns the place of the next argument.
function ledger.load(now)
  ledger.now = now
  local count = tonumber(ARGV[1])
  for i = 1, count do
    local place = 4 * i - 2
    local counter = algorithms[ARGV[place]].load(KEYS[i + 1], now,
      tonumber(ARGV[place + 1]), tonumber(ARGV[place + 2]), tonumber(ARGV[place + 3]))
    ledger.counters[i] = counter
    ledger.size = ledger.size + counter.receipts
  end
  free.load(KEYS[1], ledger.size, now)
  local past = free.take_past()
  if #past > 0 then ledger.give_back_all(past) end
  return 4 * count + 2
end

function ledger.save()
  for _, counter in ipairs(ledger.counters) do counter:save() end
  if free.touched or free.pages[1] then
    -- As long as the state: slots whose time has passed are still to be taken out of the logs.
    free.save(lifetime(ledger.expires(), ledger.now))
  end
end

-- Lets every quota push the time later until none does; returns it, and its record.
function ledger.earliest(x, cost, margin)
  local last, round = ledger.last_record(), 0
  local function record(at)
    local record = ledger.recorded(at, margin)
    if at == ledger.burst_at then record = record + ledger.burst_size * ledger.stagger end
    return math.max(record, last)
  end
  while true do
    local at = x
    for _, counter in ipairs(ledger.counters) do
      local late
      if counter.minds_late then late = round < PATIENCE and record(at) - at or math.huge end
      at = counter:earliest(at, late, cost)
    end
    if at == x then return at, record(at) end
    x, round = at, round + 1
  end
end

function ledger.recorded(at, margin)
  return math.max(at, ledger.now + ledger.round_trip) + margin
    + math.floor((at - ledger.now) / DRIFT)
end

-- Takes a slot, { at, record, cost, receipt... }; or, if it lies too far ahead, nil and the wait.
function ledger.reserve(x, cost, max_wait, margin, least_margin)
  local at, record = ledger.earliest(x, cost, margin)
  local slot, page, place
  if free.pages[1] then
    slot, page, place = free.find(x, at, function(slot)
      return slot[3] == cost and slot[2] >= ledger.recorded(slot[1], least_margin)
    end)
  end
  if slot then at = slot[1] end
  local wait = at - ledger.now
  if wait > max_wait then return nil, wait end
  if slot then
    free.take(page, place)
    return slot
  end
  if ledger.burst_at ~= at then ledger.burst_at, ledger.burst_size = at, 0 end
  ledger.burst_size = ledger.burst_size + 1
  slot = { at, record, cost }
  for _, counter in ipairs(ledger.counters) do counter:take(slot) end
  return slot
end

function ledger.release(slot)
  if slot[1] > ledger.now and not ledger.is_last(slot) then
    free.insert(slot)
  else
    ledger.give_back(slot)
  end
  ledger.pop_free()
end

-- Free slots at the end leave the state.
function ledger.pop_free()
  local last = free.last()
  while last and ledger.is_last(last) do
    free.pop()
    ledger.give_back(last)
    last = free.last()
  end
end

-- The longest wait that the quotas allow a request whose margin the policy asks for at least.
function ledger.longest_wait(floor)
  local longest = HORIZON
  for _, counter in ipairs(ledger.counters) do longest = math.min(longest, counter:longest_wait(floor)) end
  return longest
end

function ledger.last_record()
  local last = 0
  for _, counter in ipairs(ledger.counters) do last = math.max(last, counter:last_record()) end
  return last
end

-- How many requests of cost 1 may depart now.
function ledger.remaining(margin)
  local remaining = math.huge
  local late = math.max(ledger.recorded(ledger.now, margin), ledger.last_record()) - ledger.now
  for _, counter in ipairs(ledger.counters) do remaining = math.min(remaining, counter:remaining(late)) end
  return remaining
end

-- The time from which nothing recorded has any influence.
function ledger.expires()
  local expires = ledger.now
  for _, counter in ipairs(ledger.counters) do expires = math.max(expires, counter:expires()) end
  return expires
end
