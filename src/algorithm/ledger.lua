-- The quotas of one key, joined: twin of ledger.rs.
--
-- One key after the other: `load` begins with the next. Aside from the quotas' states stand the holds (see
-- hold.lua) and the free slots (see free.lua), in one value that is absent while there are neither.

-- How often quotas may push a time later until they settle for one that suits all but those that mind
-- how late it is.
local PATIENCE = 64

-- For how much longer a life is remembered than anything can count: calls may be under way for long.
local SLACK = 6000000

local ledger = {}

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

-- Reads the state of each quota, { algorithm, three numbers }, and what stands aside.
function ledger.load(states, aside, quotas, now)
  local counters, size = {}, 3
  for i, quota in ipairs(quotas) do
    local counter = algorithms[quota[1]].load(states[i], now, quota[2], quota[3], quota[4])
    counters[i], size = counter, size + counter.receipts
  end
  ledger.now, ledger.counters, ledger.quotas, ledger.aside = now, counters, #quotas, aside
  ledger.states, ledger.rules = states, quotas
  ledger.size = size  -- of a slot, its receipt included
  ledger.burst_at, ledger.burst_size = 0, 0
  free.load(hold.load(redis.call('GET', aside), aside, now, #quotas), aside, size, now)
  ledger.join_holds()
  if holds.life then ledger.note_torn() end
  local past = free.take_past()
  if #past > 0 then ledger.give_back_all(past) end
  ledger.forget_lost()
end

-- Where the clock was set back, a slot may be given back that its log has forgotten. A log without records
-- has no free slots.
function ledger.forget_lost()
  local first = ledger.counters[1]
  if ledger.quotas == 1 and first.is_log and first:count() == 0 then free.clear() end
end

-- Counts by what the upstream has said, behind the quotas.
function ledger.join_holds()
  local counters, place = ledger.counters, ledger.quotas
  for i = place + 1, place + 3 do counters[i] = nil end
  for _, kind in ipairs({ 'rest', 'pause', 'allowance' }) do
    if holds[kind] then
      place = place + 1
      counters[place] = holds[kind]
    end
  end
end

-- The first time, not before x, at which what was said lets requests worth `cost` go.
function ledger.held_up(x, cost)
  for _ = 1, 2 do
    for i = ledger.quotas + 1, #ledger.counters do x = ledger.counters[i]:earliest(x, 0, cost) end
  end
  return x
end

-- Forgets what is recorded, but not what was said.
function ledger.clear()
  redis.call('DEL', unpack(ledger.states))
  for i, quota in ipairs(ledger.rules) do
    ledger.counters[i] = algorithms[quota[1]].load(ledger.states[i], ledger.now, quota[2], quota[3], quota[4])
  end
  free.clear()
end

-- Another life begins, after the one that did at `known`: if that was by a clock which has been set back, this is
-- said to begin later than it does.
function ledger.begin(known)
  local now, before = ledger.now, holds.life
  local start = math.max(now, (before and before.start or 0) + 1, known + 1)
  local keep = math.max(before and before.keep or 0, now)
  holds.life = { start = start, version = now, rest = 0, keep = keep, is_told = false, counts = {}, marks = {} }
  for i = 1, ledger.quotas do holds.life.counts[i] = 0 end
  holds.rest = nil
end

-- The life that has begun rests until then.
function ledger.set_rest(rest)
  local now, life = ledger.now, holds.life
  life.rest, life.keep = rest, math.min(math.max(life.keep, rest + (rest - now)), now + SANE)
  if rest > now then hold.set('rest', rest, life.start, 0) end
  ledger.join_holds()
end

-- Keeps in mind of which quotas less is recorded than was when the life was written, and until when that would
-- have counted.
function ledger.note_torn()
  local life = holds.life
  for i = 1, ledger.quotas do
    if ledger.counters[i]:expires() >= life.counts[i] then life.counts[i] = 0 end
  end
end

-- Whether anything that is gone would still count then.
function ledger.is_torn(now)
  for i = 1, ledger.quotas do
    if holds.life.counts[i] > now then return true end
  end
  return false
end

-- Whether nothing is known of what was handed out to a process at this version, though it would be.
function ledger.has_forgotten(process, granted)
  if process == 0 or granted == 0 then return false end
  local marks, oldest = holds.life.marks, math.huge
  for i = 1, #marks, 2 do
    if marks[i] == process then return marks[i + 1] < granted end
    oldest = math.min(oldest, marks[i + 1])
  end
  -- Others may have taken its place since.
  return #marks < 2 * MARKS or oldest <= granted
end

-- Remembers that slots are handed out to a process at this version.
function ledger.mark(process, version)
  if process == 0 then return end
  local marks, place = holds.life.marks, 1
  for i = 1, #marks, 2 do
    if marks[i] == process then
      marks[i + 1] = version
      return
    end
    if marks[i + 1] < marks[place + 1] then place = i end
  end
  if #marks < 2 * MARKS then place = #marks + 1 end
  marks[place], marks[place + 1] = process, version
end

-- Whether the state lacks something of which there is evidence, the start and the version of a life, and at which
-- version slots were last handed out to this process; or was written by a clock that was set back by more than is
-- tolerated; or whether the store knows of nothing from before `born`, not long ago. If so, another life begins, in
-- which nothing departs for the span, and all have to be told: until that has been done, it rests for as long from
-- each call on. Whoever gets slots in the same call knows of the life.
function ledger.doubt(start, version, span, tolerance, process, granted, born)
  local now, life = ledger.now, holds.life
  local is_lost
  if not life then
    is_lost = start > 0
  elseif life.version > now + tolerance or ledger.is_torn(now + tolerance) then
    is_lost = true
  elseif start == 0 then
    is_lost = false
  elseif life.start == start then
    is_lost = life.version < version or ledger.has_forgotten(process, granted)
  else
    -- Where it began as something was missed, nobody has to miss that again.
    is_lost = life.rest == 0 or life.start < start
  end
  local is_untold = is_lost
  if is_lost then
    ledger.clear()
    ledger.begin(start)
    ledger.set_rest(now + span)
  elseif not life then
    ledger.begin(0)
    local rest = math.min(born, now) + span
    if rest > now then
      is_untold = true
      free.clear()
      ledger.set_rest(rest)
    end
  elseif life.rest > 0 and not life.is_told then
    is_untold = true
    ledger.set_rest(math.max(life.rest, now + span))
  end
  ledger.span, ledger.process = span, process
  return is_untold
end

-- Slots are handed out, to those who know of this life until nothing counts any more.
function ledger.live()
  local life, now = holds.life, ledger.now
  life.version = math.max(now, life.version + 1)
  ledger.mark(ledger.process, life.version)
  local keep = ledger.expires() + 2 * ledger.span + SLACK
  life.keep = math.min(math.max(life.keep, keep), now + SANE)
end

-- Heeds a word: 0 none; 1 a pause of a span, said to a request that departed then; 2 no more than so many
-- for a span; 3 resume; 4 a quarantine for a span, as the life that began then is lost. Returns since when, until
-- when, and how long there is a pause: see Notice.
function ledger.heed(word, span, number)
  local now, until_when = ledger.now, 0
  local stop, pause, allowance = now + math.min(span, HORIZON), holds.pause, holds.allowance
  if span == 0 and word < 3 then
    stop = now
  elseif word == 1 and not (pause and (number < pause.since or stop <= pause.stop)) then
    hold.set('pause', stop, now, 0)
    until_when, holds.touched = stop, true
  elseif word == 2 and not allowance then
    hold.set('allowance', stop, now, number)
    until_when, holds.touched = stop, true
  elseif word == 2 and number < allowance.left then
    hold.set('allowance', math.max(stop, allowance.stop), allowance.since, number)
    holds.touched = true
  elseif word == 3 and (pause or allowance) then
    holds.pause, holds.allowance, holds.touched = nil, nil, true
    until_when = 2 ^ 53 - 1
  elseif word == 4 then
    local life = holds.life
    if span == 0 or not (life and life.rest > 0 and life.start > number) then
      ledger.clear()
      ledger.begin(number)
      ledger.set_rest(stop)
    end
    until_when = 2 ^ 53 - 2
  end
  ledger.join_holds()
  local since, paused = until_when > 0 and now or 0, 0
  for i = ledger.quotas + 1, #ledger.counters do
    local counter = ledger.counters[i]
    since = math.max(since, counter.since)
    if word == 0 then until_when = math.max(until_when, counter.stop) end
    if counter ~= holds.allowance then paused = math.max(paused, counter.stop) end
  end
  if word == 4 then since = holds.life.start end
  return since, until_when, paused
end

-- For those that ask: what the margin is, with which a free slot is of use, and which the policy asks for
-- at least; when the answer arrives at the earliest; how much the margin grows within a burst.
function ledger.agree(margin, least_margin, floor, earliest, stagger)
  ledger.margin, ledger.least_margin, ledger.stagger = margin, least_margin, stagger
  ledger.arrives = earliest
  -- Those who wait are recorded later by the drift until they may go.
  local held_up = ledger.held_up(ledger.now, 2 ^ 53) - ledger.now
  local longest, least = HORIZON, floor + math.ceil(held_up / DRIFT)
  for _, counter in ipairs(ledger.counters) do longest = math.min(longest, counter:longest_wait(least)) end
  ledger.longest_wait = longest + held_up
end

function ledger.save()
  ledger.forget_lost()
  local kept = holds.life
  local has_aside = kept ~= nil or free.pages[1] ~= nil or ledger.counters[ledger.quotas + 1] ~= nil
  -- As long as any state: slots whose time has passed are still to be taken out of the logs.
  local life = lifetime(math.max(ledger.expires(), kept and kept.keep or 0), ledger.now)
  for _, counter in ipairs(ledger.counters) do counter:save(has_aside, life) end
  if not has_aside then
    if free.touched or holds.touched then redis.call('DEL', ledger.aside) end
  elseif kept or free.touched or holds.touched then
    -- What it says of the quotas is true of what they have just saved.
    local raw = hold.packed(ledger.counters, ledger.quotas) .. free.packed()
    redis.call('PSETEX', ledger.aside, life, raw)
  else
    redis.call('PEXPIRE', ledger.aside, life)
  end
end

-- Lets every quota push the time later until none does; returns it, its record, and what that would be
-- if none had to come after the last one.
function ledger.earliest(x, cost)
  local last, round = ledger.last_record(), 0
  local function record(at)
    local record = ledger.recorded(at, ledger.margin)
    if at == ledger.burst_at then record = record + ledger.burst_size * ledger.stagger end
    return math.max(record, last), record
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
  return math.max(at, ledger.arrives) + margin + math.floor((at - ledger.now) / DRIFT)
end

-- Takes a slot, { at, record, cost, receipt... }, for one request or at once for more of `count` that
-- have the same. Returns it, for how many, and by how much later each is recorded than the one before;
-- or, if it lies too far ahead, nil, nil and the wait.
function ledger.reserve(x, cost, max_wait, count)
  local past = x
  x = ledger.held_up(x, cost)
  local at, record, own_record = ledger.earliest(x, cost)
  local slot, page, place
  if free.pages[1] then
    slot, page, place = free.find(past, x, at, function(slot)
      return slot[3] == cost and slot[2] >= ledger.recorded(slot[1], ledger.least_margin)
    end)
  end
  if slot then at = slot[1] end
  local wait = at - ledger.now
  if wait > max_wait then return nil, nil, wait end
  if slot then
    free.take(page, place)
    for i = ledger.quotas + 1, #ledger.counters do ledger.counters[i]:take(slot, 1) end
    return slot, 1, 0
  end
  if ledger.burst_at ~= at then ledger.burst_at, ledger.burst_size = at, 0 end
  slot = { at, record, cost }
  local taken, step = ledger.alike(slot, count, record - own_record)
  ledger.burst_size = ledger.burst_size + taken
  for _, counter in ipairs(ledger.counters) do counter:take(slot, taken, step) end
  return slot, taken, step
end

-- How many of `count` requests have the same slot but for a step between their records, where the first
-- is recorded `held_up` later than it would be if none had to come after the last.
function ledger.alike(slot, count, held_up)
  if count == 1 or ledger.size > 3 or free.pages[1] then return 1, 0 end
  for _, counter in ipairs(ledger.counters) do count = counter:alike(slot[1], slot[3], count) end
  local stagger = ledger.stagger
  if stagger > 0 and held_up > 0 then
    return math.min(count, math.floor(held_up / stagger) + 1), 0
  end
  return count, stagger
end

-- Whether slots that were handed out under the life which began then may be given back; or under any if that is 0.
function ledger.takes_back(start)
  return start == 0 or holds.life and holds.life.start == start
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

function ledger.last_record()
  local last = 0
  for _, counter in ipairs(ledger.counters) do last = math.max(last, counter:last_record()) end
  return last
end

-- How many requests of cost 1 may depart now.
function ledger.remaining()
  local remaining = math.huge
  local late = math.max(ledger.recorded(ledger.now, ledger.margin), ledger.last_record()) - ledger.now
  for _, counter in ipairs(ledger.counters) do remaining = math.min(remaining, counter:remaining(late)) end
  return remaining
end

-- The time from which nothing recorded has any influence.
function ledger.expires()
  local expires = ledger.now
  for _, counter in ipairs(ledger.counters) do expires = math.max(expires, counter:expires()) end
  return expires
end
