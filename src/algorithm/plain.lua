-- The simplest calls: one unit, one cost, all requests may depart at once, or the only one does not wait, and no other
-- process waits. Their answers and values are those of the rest of the script, in half of the time. Not for policies of many
-- quotas, as Lua has at most 200 local variables.
--
-- A `break` ends the work for a key. If it has no answer then, nothing was written, and the rest of the script serves it. The
-- parts of the algorithms set `departs`, the time of the departure; `remaining`; `reset`, when all units are available again;
-- and `finish`, when the value is of no use any more. They repeat the functions of the algorithms, whose calls would take up to
-- twice as long.

if operation < 2 and call_flags % 256 == 0 and names == '' and not has_share then
  local format, are_plain = string.format, true
  -- The last call for a key without a value, what it has written, and its answer. Alike calls get the same.
  local fresh_call, fresh_value, fresh_lifetime, fresh_answer --whole
  -- The bytes of an announcement without demand, and an answer of one grant.
  local idle, one_grant = '\18\0', '\0\0\0\0\0\0\0\0\1\0'
  local record = now + round_trip + lateness
  --@terms
  local late = 2 * round_trip
  local deadline = now + (late > @LATE and late or @LATE)
  -- The announcements so far. Other commands wait while this script runs.
  local seen = 0
  for nth = 1, #ARGV - 1 do repeat
    if seen > 4000 then break end
    local arg, key = ARGV[nth + 1], KEYS[nth]
    local raw = redis.pcall('GET', key) or '' --whole
    local raw = redis.pcall('GETRANGE', key, '0', '@last') --ring
    if raw == '' then break end --ring
    -- Calls of a batch often differ in the arrival alone, which does not matter here. A call of this length has one request,
    -- and its units are the cost.
    local is_fresh = raw == '' and #arg == 35 --whole
    if is_fresh and sub(arg, 1, 21) == fresh_call then --whole
      call('SET', key, fresh_value, 'PX', fresh_lifetime) --whole
      answers[nth] = fresh_answer --whole
      break --whole
    end --whole
    local number, _, cost, count = unpack('<I7I7I4B', arg)
    if count == 0 or cost == 0 or number == 0 then break end
    local units = unpack('<I7', arg, count * 14 + 15)
    local requests = units / cost
    if requests % 1 > 0 or units > 4294967295 then break end
    local front, announced, size, tail_room, expires, @read = '', 0, 0, 0, 0
    if raw ~= '' then
      -- An error is a table without entries.
      if #raw < @head then break end
      front, announced, expires, @read = unpack('<c5I2I7@formats', raw) --whole
      front, announced, expires, size, tail_room, @read = unpack('<c5I2I7I4I4@formats', raw) --ring
      if front ~= 'tt\1\@flags\@quotas' or @differs then break end
    end
    raw = #raw < @head + size and call('GETRANGE', key, '0', @head + size - 1) or sub(raw, 1, @head + size) --ring
    -- There has to be room for another announcement, and an entry of each log that is read whole.
    if #raw ~= @head + size or size + 34 + @quotas * 11 > tail_room then break end --ring
    seen = seen + announced
    local at, rings, log_bytes, logs = @head + 1, @head + tail_room, 0, ''
    --@load
    local other_bytes, from, announced_after, latest_deadline, is_same = '', at, 1, deadline, true
    for _ = 1, announced do
      if at + 22 > #raw then break end
      local who, ends, bytes, before = unpack('<I7I7I2I7', raw, at)
      local waits = bytes >= 32768
      local next, is_kept = at + 16 + bytes % 32768, ends + @FORGOTTEN > now
      if who == process then
        if is_kept and before >= number then break end
        -- A refusal keeps grants that may be taken back.
        is_same = is_same and is_kept and bytes > 7 and not waits
        is_kept = false
      elseif not is_kept then
        is_same = false
      end
      if is_kept then
        if waits and ends + @OVERDUE >= now then break end
        announced_after = announced_after + 1
        if ends > latest_deadline then latest_deadline = ends end
      else
        if at > from then other_bytes = other_bytes .. sub(raw, from, at - 1) end
        from = next
      end
      at, announced = next, announced - 1
    end
    if announced > 0 or raw ~= '' and at ~= #raw + 1 - log_bytes then
      common[key] = raw
      break
    end
    if at > from then other_bytes = other_bytes .. sub(raw, from, at - 1) end
    local departs, remaining, reset, finish = now, 4294967295, 0, latest_deadline + @FORGOTTEN
    --@room
    if departs > now then
      if operation == 1 and units == 1 and is_same and departs > now + horizon and @quotas == 1 then
        answers[nth] = pack('<BI4I7I7BI2I7', 0, 0, reset, 0, 1, 0, departs)
      end
      break
    end
    --@record
    if reset > finish then finish = reset end
    if remaining < 0 then remaining = 0 end
    remaining = remaining - remaining % 1
    size = #other_bytes + 34 + #logs --ring
    -- As in state.lua.
    local sets_expiry = finish > expires or expires - finish > (finish - now) / 2
    if sets_expiry then expires = finish + (finish - now - (finish - now) % 4) / 4 end
    local value = pack('<c5I2I7@formatsI7I7c2I7I7I4', 'tt\1\@flags\@quotas', announced_after, expires, @written, --whole
    local value = pack('<c5I2I7I4I4@formatsI7I7c2I7I7I4', 'tt\1\@flags\@quotas', announced_after, expires, size, tail_room, @written, --ring
      process, deadline, idle, number, record, units) .. other_bytes .. logs
    local lifetime = (sets_expiry or is_given) and format('%d', (expires - now) / 1000 + 2)
    if lifetime then --whole
      call('SET', key, value, 'PX', lifetime) --whole
    elseif #value == #raw then --whole
      call('SETRANGE', key, '0', value) --whole
    else --whole
      call('SET', key, value, 'KEEPTTL') --whole
    end --whole
    call('SETRANGE', key, '0', value) --ring
    if lifetime then call('PEXPIRE', key, lifetime) end --ring
    answers[nth] = pack('<BI4I7c10I7I7I4', 0, remaining, reset, one_grant, now, record, requests)
    if is_fresh then --whole
      fresh_call, fresh_value, fresh_lifetime, fresh_answer = sub(arg, 1, 21), value, lifetime, answers[nth] --whole
    end --whole
  until true are_plain = are_plain and answers[nth] end
  if are_plain then return pack('<I7', now) .. concat(answers) end
end
