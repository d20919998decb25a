// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMigrationPage goes through docs/migration.md command by command, on a host with
// the history that Divingbell leaves: what the page shows is what is printed.
func TestMigrationPage(t *testing.T) {
	t.Parallel()
	steps := readConsole(t, "../../docs/migration.md")
	if len(steps) < 25 {
		t.Fatalf("the page has only %d commands", len(steps))
	}
	script := divingbellLeft + standIns
	for n, s := range steps {
		dir := map[string]string{"$": "/mnt", "host#": "/mnt/host"}[s.prompt]
		command := strings.ReplaceAll(s.command, "registry.example:5000/metal-a", "oci:/mnt/out")
		script += fmt.Sprintf("cd %s\n{ %s\n} >/mnt/said 2>&1 || true\nprintf '\\n@@@ %d\\n'; cat /mnt/said; printf '\\n@@@ end\\n'\n", dir, command, n)
	}
	out := onDivingbellHost(t, script)
	for n, s := range steps {
		_, said, ok := strings.Cut(out, fmt.Sprintf("\n@@@ %d\n", n))
		if !ok {
			t.Fatalf("%s %s was not run", s.prompt, s.command)
		}
		said, _, _ = strings.Cut(said, "\n@@@ end\n")
		s.compare(t, said)
	}
}

// standIns are what systemd and helm would do, in a system that has neither, and the
// programs where the page copies them from.
const standIns = `
mkdir -p /mnt/up/usr /mnt/work/usr /mnt/host
mount -t overlay overlay -o lowerdir=/usr,upperdir=/mnt/up/usr,workdir=/mnt/work/usr /usr
cp "$(command -v caisson-agent)" "$EXAMPLE"/../../packaging/systemd/caisson-agent.service keys/operator.pub /mnt/host
start() {
	: >/mnt/started
	caisson-agent run 2>>/mnt/agent.log &
	agent=$!
	await test /run/caisson/status.json -nt /mnt/started # the unit is up after a whole look
}
stop() {
	kill $agent
	wait $agent || true
}
systemctl() {
	case "$*" in
	"enable --now caisson-agent") start ;;
	"disable --now caisson-agent") stop ;;
	reboot)
		stop
		reboot
		start
		;;
	list-unit-files*) find /etc/systemd/system -name '*scratch*' -o -name 'eth0*' ;;
	*) false ;;
	esac
}
journalctl() { cat /mnt/agent.log; }
helm() { umount $secret; }
set +x
`

// step is a command of a page and what it shows of its output.
type step struct {
	prompt, command string
	shows           []string
}

var consoleBlock = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// readConsole reads the commands of a page.
func readConsole(t *testing.T, page string) (steps []step) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range consoleBlock.FindAllSubmatch(text, -1) {
		for line := range strings.Lines(string(block[1])) {
			line = strings.TrimRight(line, "\n")
			prompt, command, ok := strings.Cut(line, " ")
			switch {
			case ok && (prompt == "$" || prompt == "host#"):
				steps = append(steps, step{prompt: prompt, command: command})
			case len(steps) == 0:
				t.Fatalf("%s: %q belongs to no command", page, line)
			default:
				last := &steps[len(steps)-1]
				last.shows = append(last.shows, line)
			}
		}
	}
	return steps
}

// asks are commands that ask whether something is there: without a line below them
// there is nothing.
var asks = regexp.MustCompile(`^(ls|findmnt|systemctl list)`)

// compare looks for each line that the page shows, in any order: the lines of two
// streams have none.
func (s step) compare(t *testing.T, said string) {
	t.Helper()
	lines := strings.Split(said, "\n")
	for _, want := range s.shows {
		if !slices.ContainsFunc(lines, isShownAs(want)) {
			t.Errorf("%s %s\nprints\n%s\nand not\n%s", s.prompt, s.command, said, want)
		}
	}
	if len(s.shows) == 0 && asks.MatchString(s.command) && strings.TrimSpace(said) != "" {
		t.Errorf("%s %s\nprints\n%s\nand should print nothing", s.prompt, s.command, said)
	}
}

// isShownAs reports whether a line is one of the page, where "…" stands for anything
// and the program's name before a message is left out.
func isShownAs(want string) func(string) bool {
	parts := strings.Split(strings.TrimSpace(want), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	line := regexp.MustCompile("^(caisson(-agent)?: | *)" + strings.Join(parts, ".*") + "$")
	return func(got string) bool { return line.MatchString(strings.TrimRight(got, " ")) }
}
