# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of gpu.sh
# The stages of tests/gpu.sh: their limits, logs and the table of what came of them. For tests/gpu/report.py, $out has
# machine.tsv, stages.tsv and logs/.

begin_stages() {
  scratch=$(mktemp -d) # for the runs of trainings
  deadline=$((SECONDS + time_limit - 10)) # the report needs some of it
  mkdir -p "$out" || exit
  rm -rf "$out"/{logs,logs.tar.gz,machine.tsv,report.md,results.json,stages.tsv,stages.txt}
  mkdir "$out/logs" || exit
  trap 'finish 1' EXIT
  trap stop INT TERM
}

# The emulated GPU of a rehearsal is thousands of times slower: it has a smaller network, less work and longer limits.
network() { if $rehearse; then echo mlp; else echo resnet18; fi; }
sized() { if $rehearse; then echo "$2"; else echo "$1"; fi; } # NUMBER OF_A_REHEARSAL

# record NAME RESULT SECONDS NOTE COMMAND, where RESULT is passed, failed, incomplete or skipped
record() {
  (IFS=$'\t' && printf '%s\n' "$*") >>"$out/stages.tsv"
  printf '%-10s %4.0f s  %s%s\n' "$2" "$3" "$1" "${4:+: $4}" | tee -a "$out/stages.txt"
}

# stage NAME SECONDS COMMAND...: runs for at most SECONDS; writes the output to the logs.
stage() {
  local name=$1 limit=$2 left=$((deadline - SECONDS)) began=$EPOCHREALTIME
  local log=$out/logs/${1// /-}.log status note='' result=failed
  shift 2
  limit=$(sized "$limit" $((3 * limit)))
  ((limit <= left)) || limit=$left
  if ((limit < 5)); then
    record "$name" skipped 0 "no time left" "$*"
    return 1
  fi
  timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null &
  wait $! # a signal interrupts it
  status=$?
  case $status in
    0)
      result=passed note=$(figure "$log")
      [[ $note != '0 tests'* ]] || result=skipped
      ;;
    124 | 137) note="stopped after $limit s$(last_words "; its last line: " "$log")" ;;
    *) note="exit status $status$(last_words ": " "$log")" ;;
  esac
  if [[ $1 == compute-sanitizer ]]; then
    if grep -q 'Device not supported' "$log"; then
      result=skipped note="compute-sanitizer does not support this machine's device"
    fi
    if [[ $note == stopped* ]] && ! grep -v COMPUTE-SANITIZER "$log" | grep '^========= [A-Z]' >/dev/null; then
      result=incomplete note="stopped after $limit s, no error until then"
    fi
  fi
  record "$name" "$result" "$(awk "BEGIN { print $EPOCHREALTIME - $began }")" "$note" "$*"
  [[ $result == passed ]]
}

beside() { (trap stop INT TERM; "$@") & }

# A log's result in a few words.
figure() {
  local found rates='([0-9]+) +[0-9]+ +([0-9]+) +([0-9.]+x) +[0-9]+ +([0-9]+) +([0-9.]+x)' # bench/pytorch/gpu_step.py
  found=$(sed -nE "s/^ *[0-9]+ +$rates .*/\1 images\/s; eager \2 (\3), compile \4 (\5)/p
    s/^\{.*\"images_per_s\":([0-9]+).*/\1 images\/s/p
    s/^\[  PASSED  \] (.*)\.$/\1/p
    s/^\[  SKIPPED \] ([0-9]+ tests?), listed below:$/\1 skipped/p
    s/^peak (.*): ([0-9]+)(\.[0-9]*)?$/\1 \2/p
    s/^(CUDA|cuBLASLt|cuDNN|NCCL) {2,}(.*)/\1 \2/p" "$1")
  case $found in
    *images/s*) tail -n 1 <<<"$found" ;;
    *) paste -sd , <<<"$found" | sed 's/,/, /g' ;;
  esac
}

# last_words PREFIX LOG: why a stage failed, as far as its log tells: the first error, else the last line.
last_words() {
  local pattern line=''
  for pattern in 'ringtape: error: ' '^\[  FAILED  \] [A-Za-z]+' '^========= [A-Z][a-z]' ' => not found' \
    '(^|[ :])([Ff]atal )?[Ee]rror[: ]' .; do
    if [[ $pattern == . ]]; then
      line=$(grep -av '^[[:space:]]*$' "$2" | tail -n 1)
    else
      line=$(grep -aE -m 1 "$pattern" "$2")
    fi
    [[ ! $line ]] || break
  done
  [[ ! $line ]] || printf '%s%s' "$1" "$(one_line "$line")"
}

one_line() { tr -s '[:space:][:cntrl:]' ' ' <<<"$1" | sed 's/^ //; s/ $//' | cut -c1-400; }

stop() {
  local running
  mapfile -t running <<<"$(jobs -p)"
  kill "${running[@]}" 2>/dev/null
  exit 1
}

finish() {
  trap - EXIT
  wait
  if python3 "$root/tests/gpu/report.py" "$out" "$out"; then echo "gpu.sh: $out/report.md"; else
    echo "gpu.sh: error: no report; the logs are in $out/logs.tar.gz" >&2
  fi
  tar -C "$out" -czf "$out/logs.tar.gz" logs && rm -r "$out/logs"
  rm -rf "$scratch"
  if grep -qP '^[^\t]*\tfailed\t' "$out/stages.tsv"; then exit 1; fi
  exit "$1"
}
