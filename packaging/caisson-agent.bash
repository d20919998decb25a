# bash completion for caisson-agent; made by a test from its help
_caisson_agent() {
	local cur=${COMP_WORDS[COMP_CWORD]} words=
	case ${COMP_WORDS[COMP_CWORD-1]} in
	-o) words='text json' ;;
	*) case ${COMP_WORDS[1]} in
	run) words="-o -q -v" ;;
	apply) words="--ca --epoch-key --fleet --from --key --node -o --plain-http -q --retry --threshold -v" ;;
	enroll) words="--ca --epoch-key --fleet --from --key --node -o --plain-http -q --replace --site --threshold -v" ;;
	plan) words="--ca --epoch-key --fleet --from --key --node -o --plain-http -q --threshold -v" ;;
	status) words="--logs -o -q --trace -v --watch" ;;
	why) words="-o -q -v" ;;
	report) words="-o -q -v" ;;
	sync) words="-o -q --retry -v --wipe" ;;
	confirm) words="-o -q -v" ;;
	rollback) words="--for -o -q --reason -v" ;;
	pin) words="--for -o -q --reason -v" ;;
	freeze) words="--for -o -q --reason -v" ;;
	forward) words="-o -q --reason -v" ;;
	pause) words="--for -o -q --reason -v" ;;
	resume) words="-o -q -v" ;;
	clear) words="-o -q -v" ;;
	operation) words="-o -q -v" ;;
	service) words="-o -q --reason -v" ;;
	recipient) words="-o -q -v" ;;
	quote) words="--nonce -o -q -v" ;;
	windows) words="-o -q -v" ;;
	reboot) words="-o -q -v" ;;
	install) words="--disk -o -q -v --wipe --yes" ;;
	restore) words="--all --ca --epoch-key --fleet --from --key --node -o --plain-http --protection -q --threshold -v" ;;
	version) words="-o -q -v" ;;
	esac ;;
	esac
	[ "$COMP_CWORD" -gt 1 ] || words='run apply enroll plan status why report sync confirm rollback pin freeze forward pause resume clear operation service recipient quote windows reboot install restore version'
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	[ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}
complete -F _caisson_agent caisson-agent
