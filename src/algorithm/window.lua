-- The sliding window; see window.rs.
--
-- The log has the entries from `first` to before `stop`; entry 0 is the first one in the value. Entries from `kept` on are in the
-- tables `times` and `befores`, as they were added or changed; those before are in the value. An entry holds its recorded time
-- and the units before it. In the tables, these count from entry `first`; in the value, from the beginning, modulo 2^32, and
-- `base` is the difference. `total` is all units from the beginning, `used` those of the log; `first_time` and `last` are the
-- recorded times of its first and last entry.
-- A log has `room` for entries. The first entry of a ring is in `first_slot`; `pages` are the parts that were read.
local load$, drop$, earliest$, fits$, take$, settle$, ends$, clear$, write$
do
  local prefix = sub(head, @terms, @terms + 11)
  local limit, window, grain = unpack('<I4I7I7', head, @terms + 1)
  if window < horizon then common.has_short_window = true end
  if window + grain > common.memory then common.memory = window + grain end
  local first, kept, stop, total, base, used, first_time, last
  local times, befores
  local log, room = 0, 1000 --whole
  local ring, room, first_slot, pages --ring

  function load$()
    first, kept, stop, total, base, used, first_time, last = 0, 0, 0, 0, 0, 0, 0, 0
    times, befores = nil, nil
    ring, room, first_slot, pages = rings, 64, 0, {} --ring
    if common.has_quota(@value, prefix) then
      kept, total = unpack('<I2I4', raw, @value + 12) --whole
      kept, total, room, first_slot, first_time, base, last = unpack('<I2I4I2I2I7I4I7', raw, @value + 12) --ring
    end
    log, logs = logs, logs + kept * 11 --whole
    rings = rings + room * 11 --ring
  end

  -- The recorded time of an entry, and the units before it.
  local function entry(i)
    if i >= kept then return times[i], befores[i] end
    if i == first then return first_time, 0 end
    local time, before = unpack('<I7I4', raw, log + i * 11) --whole
    local slot = (first_slot + i) % room --ring
    local behind = slot % 32 --ring
    local page = slot - behind --ring
    local text = pages[page] --ring
    if not text then --ring
      text = call('GETRANGE', key, ring + page * 11, ring + page * 11 + 351) --ring
      pages[page] = text --ring
    end --ring
    local time, before = unpack('<I7I4', text, behind * 11 + 1) --ring
    return time, (before - base) % 4294967296
  end

  -- The last entry that was recorded at or before `most`, or with at most so many units before it. A search from a
  -- good guess reads few entries.
  local function search(most, by_units, guess)
    local low, high, step = first - 1, stop, 1
    guess = guess - guess % 1
    while high - low > 1 do
      if guess <= low or guess >= high then
        guess = (low + high) / 2
        guess = guess - guess % 1
      end
      local time, before = entry(guess)
      if (by_units and before or time) <= most then
        low, guess = guess, guess + step
      else
        high, guess = guess, guess - step
      end
      step = step * 2
    end
    return low
  end

  -- Forgets what has left the window. Called before the functions below, once the tail was read.
  function drop$()
    log = log + #raw - logs + 1 --whole
    stop = kept
    if stop == 0 then return end
    first_time, base = unpack('<I7I4', raw, log) --whole
    last = unpack('<I7', raw, log + (stop - 1) * 11) --whole
    if last + window <= now then
      first, base = stop, total
    elseif first_time + window <= now then
      local live = search(now - window, false, 1) + 1
      local time, before = entry(live)
      first, first_time, base = live, time, base + before
    end
    used = (total - base) % 4294967296
  end

  function earliest$(from, ahead, cost)
    local rank = used + ahead + cost - limit - 1
    if rank < 0 then return from end
    local rounds, at = 0, now + lateness
    if rank >= used then
      rounds = used <= limit and rank / limit or (rank - used) / limit + 1
      rounds = rounds - rounds % 1
      rank = rank - rounds * limit
    end
    if rank < used then
      at = entry(search(rank, true, first + (stop - first) * rank / used))
    end
    at = at + window
    if at < from then at = from end
    return at + span(rounds, window + lateness)
  end

  function fits$(at, cost)
    local free = limit - used
    if first < stop and first_time + window <= at then
      local live = search(at - window, false, first) + 1
      local _, left = used, used
      if live < stop then _, left = entry(live) end
      free = free + left
    end
    -- Values hold the sum of all units in four bytes.
    if free > 4294967295 - used then free = 4294967295 - used end
    if free < cost then return 0 end
    free = free / cost
    return free - free % 1
  end

  function take$(_, recorded, units)
    recorded = recorded + grain - 1
    recorded = recorded - recorded % grain
    if not times then times, befores = {}, {} end
    if first == stop or recorded > last then
      times[stop], befores[stop] = recorded, used
      if first == stop then first_time = recorded end
      stop, last = stop + 1, recorded
    elseif recorded ~= last then
      -- The first entry that is as late.
      local at = search(recorded - 1, false, stop - 1) + 1
      for i = at, kept - 1 do times[i], befores[i] = entry(i) end
      if at < kept then kept = at end
      if times[at] ~= recorded then
        for i = stop, at + 1, -1 do
          times[i], befores[i] = times[i - 1], befores[i - 1] + units
        end
        times[at] = recorded
        if at == first then first_time = recorded end
        stop = stop + 1
      else
        for i = at + 1, stop - 1 do befores[i] = befores[i] + units end
      end
    end
    used = used + units
    if stop - first > room then needs_transaction = true end
  end

  if is_rare then
    local function round(recorded)
      recorded = recorded + grain - 1
      return recorded - recorded % grain
    end

    -- Until the end, `befores` holds the units of each entry that may change instead of those before it, so that a correction
    -- changes one entry. An entry without units is dropped at the end.
    function settle$(list)
      if #list == 0 then return end
      local least = list[1]
      for i = 3, #list, 2 do
        if list[i] < least then least = list[i] end
      end
      local from = search(round(least) - 1, false, stop - 1) + 1
      if not times then times, befores = {}, {} end
      for i = from, kept - 1 do times[i], befores[i] = entry(i) end
      if from < kept then kept = from end
      local units, before = befores, from < stop and befores[from] or used
      for i = from, stop - 1 do
        units[i] = (i + 1 < stop and befores[i + 1] or used) - befores[i]
      end
      for i = 1, #list, 2 do
        local recorded, difference = round(list[i]), list[i + 1]
        local low, at = from - 1, stop
        while at - low > 1 do
          local middle = (low + at) / 2
          middle = middle - middle % 1
          if times[middle] < recorded then low = middle else at = middle end
        end
        local is_found = times[at] == recorded
        if difference > 4294967295 - used then difference = 4294967295 - used end
        if difference < 0 then
          if is_found then
            if -difference > units[at] then difference = -units[at] end
            units[at], used = units[at] + difference, used + difference
          end
        elseif difference > 0 then
          used = used + difference
          if not is_found then
            for j = stop, at + 1, -1 do times[j], units[j] = times[j - 1], units[j - 1] end
            times[at], units[at], stop = recorded, 0, stop + 1
          end
          units[at] = units[at] + difference
        end
      end
      if stop - first > room then needs_transaction = true end
      local next = from
      for i = from, stop - 1 do
        local here = units[i]
        if here > 0 then
          times[next], befores[next] = times[i], before
          next, before = next + 1, before + here
        end
      end
      stop = next
      if first < stop then
        last = entry(stop - 1)
        first_time = entry(first)
      end
    end

    function common.latest$() return first < stop and last or 0 end

    function clear$()
      first, kept, stop, total, base, used = 0, 0, 0, 0, 0, 0
      times, befores = nil, nil
    end
  end

  -- When the counter expires, and when all units are available again.
  function ends$()
    local time = first < stop and last + window or 0
    return time, time
  end

  -- The numbers of the quota, and the entries of a log that is read and written whole.
  function write$()
    local changed = ''
    if kept < stop then
      local entries = {}
      for i = kept, stop - 1 do
        entries[i - kept + 1] = pack('<I7I4', times[i], (befores[i] + base) % 4294967296)
      end
      changed = entries[2] and concat(entries) or entries[1]
    end
    total = (base + used) % 4294967296
    if kept > first then changed = sub(raw, log + first * 11, log + kept * 11 - 1) .. changed end --whole
    return pack('<c12I2I4', prefix, stop - first, total), changed --whole
    if changed ~= '' then --ring
      local slot = (first_slot + kept) % room --ring
      local fit = (room - slot) * 11 --ring
      call('SETRANGE', key, ring + slot * 11, #changed > fit and sub(changed, 1, fit) or changed) --ring
      if #changed > fit then call('SETRANGE', key, ring, sub(changed, fit + 1)) end --ring
    end --ring
    local before, new_first_slot = base, (first_slot + first) % room --ring
    if first >= kept and first < stop then before = (befores[first] + base) % 4294967296 end --ring
    return pack('<c12I2I4I2I2I7I4I7', prefix, stop - first, total, room, new_first_slot, first_time, before, last), '' --ring
  end
end

--@terms
local prefix$ = sub(head, @terms, @terms + 11)
local limit$, window$, grain$ = unpack('<I4I7I7', head, @terms + 1)
local rounded$ = record + grain$ - 1
rounded$ = rounded$ - rounded$ % grain$

--@load
local ring$ = rings --ring
rings = rings + room$ * 11 --ring
count$, total$ = count$ or 0, total$ or 0 --whole
log_bytes = log_bytes + count$ * 11 --whole

--@room
local used$, first$, base$, last$, log$ = 0, 0, 0, 0, at --whole
local used$ = 0 --ring
at = at + count$ * 11 --whole
local changed$ = ''
if count$ > 0 then
  first$, base$ = unpack('<I7I4', raw, log$) --whole
  last$ = unpack('<I7', raw, at - 11) --whole
  if last$ + window$ <= now then
    log$, count$, base$ = at, 0, total$ --whole
    count$, base$ = 0, total$ --ring
  elseif first$ + window$ <= now then
    local text, behind, stop = raw, log$ + 11, at --whole
    local slot = (first_slot$ + 1) % room$ --ring
    local text = call('GETRANGE', key, ring$ + slot * 11, ring$ + (slot + 16 < room$ and slot + 16 or room$) * 11 - 1) --ring
    local behind, stop = 1, #text --ring
    repeat
      first$, base$ = unpack('<I7I4', text, behind)
      behind = behind + 11
    until first$ + window$ > now or behind > stop
    if first$ + window$ <= now then break end
    count$, log$ = count$ - (behind - 11 - log$) / 11, behind - 11 --whole
    local gone = (behind - 1) / 11 --ring
    count$, first_slot$ = count$ - gone, (first_slot$ + gone) % room$ --ring
  end
  used$ = (total$ - base$) % 4294967296
end
if used$ == limit$ then
  departs, reset = first$ + window$, last$ + window$
elseif used$ + units > limit$ or count$ > 0 and rounded$ < last$ then
  break
elseif count$ == 0 or rounded$ > last$ then
  if count$ == room$ then break end --ring
  if count$ == 1000 then break end --whole
  changed$ = pack('<I7I4', rounded$, total$)
end

--@record
logs = logs .. sub(raw, log$, log$ + count$ * 11 - 1) .. changed$ --whole
if changed$ ~= '' then --ring
  call('SETRANGE', key, ring$ + (first_slot$ + count$) % room$ * 11, changed$) --ring
end --ring
if changed$ ~= '' then
  if count$ == 0 then first$ = rounded$ end
  count$, last$ = count$ + 1, rounded$
end
used$, total$ = used$ + units, (total$ + units) % 4294967296
if limit$ - used$ < remaining then remaining = limit$ - used$ end
if last$ + window$ > reset then reset = last$ + window$ end
