-- The processes to nudge; see State::nudge in next.rs. Runs within state.lua if processes wait that are not overdue: sets
-- `nudged`, and the deadlines of these processes in `other_bytes`.
local has_rivals = fair and fair.has_rivals
local function nudge(<<free&>>)
  local frees, far = <<free& > 0| or >>, now + (horizon > @LEAST_BEYOND and horizon or @LEAST_BEYOND)
  -- The process ahead, its rank, when the one behind it may know that it is dead, and how many processes are looked at.
  local process_ahead, rank, overdue, most = nil, 0, 0, has_rivals and described > 0 and 1 or 4
  -- If not arrival alone decides the order, it is not known. A process is nudged if it calls too late by more than `late`.
  local nudges_all, late = frees and has_rivals, frees and 0 or @UNAWARE + 2 * round_trip
  -- True if a request waits for a unit that was not set free.
  local function waits_elsewhere(<<cost&>>)
    if free& > 0 then cost& = 0 end
    return frees and (<<cost& > 0| or >>) and earliest(now, <<0>>, <<cost&>>) > far
  end
  -- The announcements in order, each as in `common.front`; the new deadlines of the processes to nudge, by their numbers.
  local waiting, soon_overdue, offset = common.front, {}, announced_at
  local <<ahead&, previous&>> = <<0, 0>>
  if frees or has_rivals then
    waiting = {}
    while offset < at do
      local who, deadline, bytes, _, first = unpack('<I7I7I2I7I7', padded, offset)
      if bytes >= 32768 and deadline >= now and who ~= process then
        local their_level, costs = (who % @SHARE - who % @LEVEL) / @LEVEL, offset + 23 + @demand
        local share = who % @LANE >= @SHARE and unpack('<I7', raw, offset + 9 + bytes - 32768) or 1
        local lead = has_rivals and fair.leads[share * 8 + their_level] or 0
        waiting[#waiting + 1] = { their_level, lead, first, who, deadline, costs }
      end
      offset = offset + 16 + bytes % 32768
    end
    table.sort(waiting, common.is_before)
  end
  local own
  if described > 0 and not nudges_all then
    local each& = total_cost > 0 and cost& or left[1 + &]
    if not waits_elsewhere(<<each&>>) then own = { level, has_rivals and fair.leads[fair.own] or 0, left[1], process } end
  end
  nudged = {}
  for i = 1, #waiting do
    local _, _, _, who, deadline, costs = spread(waiting[i])
    if own and common.is_before(own, waiting[i]) or #nudged == 255 then break end
    local <<each&>> = common.first_cost(costs)
    if waits_elsewhere(<<each&>>) then
      -- Its cost in other units is kept for it.
      ahead& = ahead& + (nudges_all and 0 or each&)
    else
      local without_lane = who - who % @LANE
      local is_other = without_lane ~= process_ahead
      if is_other then rank = rank + 1 end
      local is_last = is_other and (frees or rank == most) and <<free& <= ahead&| and >>
      -- The last one may depart if the process ahead of it is dead, and so may each that watches another.
      local opening = earliest(now, <<(is_last or not frees) and previous& or ahead&>>, <<each&>>)
      local is_later = frees and opening > far
      is_later = is_later or not frees and opening == beyond and places.look(previous@place, each@place, now) --places
      if opening < overdue then opening = overdue end
      if not is_later and (frees or is_other) and deadline > opening + late then
        local soon = (opening > now and opening or now) + @NUDGE_TIMEOUT + 2 * round_trip
        if common.is_notified and soon < deadline then deadline = soon end
        nudged[#nudged + 1], soon_overdue[who] = who, deadline
      end
      if is_last then break end
      local <<units&>> = unpack('<@sums', raw, costs - @demand + 14)
      if is_other then
        process_ahead, overdue = without_lane, frees and 0 or deadline + @WATCH_DELAY
        previous& = ahead&
      end
      ahead& = ahead& + (nudges_all and 0 or units&)
    end
  end
  if not common.is_notified or not nudged[1] then return end
  -- Writes their new deadlines: they count as overdue soon, as one may be dead.
  other_bytes = other_bytes or sub(raw, announced_at, cuts[1][1] - 1) .. sub(raw, cuts[1][2], at - 1)
  is_same, latest_deadline, offset = false, own_bytes ~= '' and unpack('<I7', own_bytes, 8) or 0, 1
  local slices, from = {}, 1
  while offset <= #other_bytes do
    local who, ends, bytes = unpack('<I7I7I2', other_bytes, offset)
    local soon = soon_overdue[who]
    if soon then
      slices[#slices + 1], ends = sub(other_bytes, from, offset + 6) .. pack('<I7', soon), soon
      from = offset + 14
    end
    if ends > latest_deadline then latest_deadline = ends end
    offset = offset + 16 + bytes % 32768
  end
  other_bytes = concat(slices) .. sub(other_bytes, from)
end
-- The units that this call set free, beyond what it granted. If no process waits for them, the call looks at the first ones.
local <<free&>> = <<0>>
if returned then free& = (returned[&] or 0) > granted& and returned[&] - granted& or 0 end
if places.released > 0 then free@place = places.free() end --places
nudge(<<free&>>)
if not nudged[1] and (<<free& > 0| or >>) then nudge(<<0>>) end
