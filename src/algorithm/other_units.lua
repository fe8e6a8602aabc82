-- If the next request of a process cannot depart within the horizon because of a unit in which this demand costs nothing,
-- only that request counts; see State::others in state.rs. Runs within state.lua, only if there are several units.

if competing > 0 then
  local latest = now + horizon
  if suspended_until > latest then latest = suspended_until end
  local mine& = count > 0 and points[(count - 1) * @step + 1 + &] or 0
  for j = 1, competing do
    local <<first&>> = common.first_cost(costs_at[j])
    local elsewhere& = mine& > 0 and 0 or first&
    if earliest(now, <<0>>, <<elsewhere&>>) > latest then
      newest[j], <<waiting&[j]>> = oldest[j], <<first&>>
    end
  end
end
