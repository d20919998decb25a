// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// broken are generations that no check of what is published could tell from good ones.
var broken = []struct {
	name   string
	site   []string // edits of the quickstart, before the good generation
	edits  []string // and after it
	agent  string   // statements of Go that the service of the layer's agent begins with
	card   string   // the machine's, see [machine.Options]
	reason string   // what the node says of it
}{
	{
		name:   "an agent that takes the card down",
		agent:  takesTheCardDown,
		reason: "registry is reached",
	},
	{
		name: "an agent that says that it is ready and sleeps",
		agent: `c, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		panic(err)
	}
	_, _ = c.Write([]byte("READY=1"))
	time.Sleep(1 << 62)`,
		edits:  []string{"args: [transparent_hugepage=never]", "args: [transparent_hugepage=never, caisson.deadline=60]"},
		reason: "none came up",
	},
	{
		name: "a root without sshd", // a layer without it is not built: it is asked for

		site:   []string{"machine:\n", "health:\n  - {name: sshd, unit: ssh.service, interval: 2s, retries: 3}\n\nmachine:\n"},
		edits:  []string{"  sysctl:\n", "  units: {ssh.service: {state: masked}, ssh.socket: {state: masked}}\n  sysctl:\n"},
		reason: "sshd",
	},
	{
		name: "a root without networkd",
		site: []string{"machine:\n", "health:\n  - {name: networkd, unit: systemd-networkd.service, interval: 2s, retries: 3}\n\nmachine:\n"},
		edits: []string{"  sysctl:\n",
			"  units: {systemd-networkd.service: {state: masked}, systemd-networkd.socket: {state: masked}}\n  sysctl:\n"},
		reason: "networkd",
	},
	{
		name:   "a kernel without the card's driver",
		site:   []string{"package: linux-image-cloud-amd64", "package: linux-image-amd64"},
		edits:  []string{"package: linux-image-amd64", "package: linux-image-cloud-amd64"},
		card:   "e1000e",
		reason: "none came up",
	},
}

// TestLongBrokenGenerations publishes each of them over a generation that has proved itself. Nobody
// touches the node then: it ends on what was good, and says why.
func TestLongBrokenGenerations(t *testing.T) {
	require.Long(t)
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			f := fleet(t, slices.Concat(leanSite, patient, b.site)...)
			o := f.byHand(t, f.withDisk(t))
			if o.Card = b.card; b.card != "" {
				o.Memory = 2048
			}
			m := f.start(t, o)
			s := f.login(t, m)
			good := f.judged(t, s)
			if good.Health != spec.HealthOK {
				t.Fatalf("first boot: %+v", good)
			}
			f.edits(t, b.edits...)
			if b.agent != "" {
				f.build(t, "--agent", agentThat(t, b.agent))
			} else {
				f.build(t)
			}
			f.publish(t)
			from := m.Console.Len()
			last(t, m, s, "sudo caisson-agent sync; sudo systemctl reboot")
			waitFor(t, m, from, "caisson: overlay of node alpha, generation 2")
			waitFor(t, m, from, "it was rejected on this node", "caisson: booting the last good overlay", "Soft-rebooting")
			s = f.login(t, m)
			st := f.judged(t, s)
			said := st.HealthDetail
			if st.Rejected != nil {
				said += st.Rejected.Reason
			}
			if st.Layer != good.Layer || st.Sync != spec.SyncBehind || !strings.Contains(said, b.reason) {
				t.Errorf("it ends on %+v, and says %q", st, said)
			}
			var why spec.Why
			if err := json.Unmarshal([]byte(run(t, s, "sudo caisson-agent why -o json || [ $? -eq 3 ]")), &why); err != nil {
				t.Fatal(err)
			}
			if len(why.Findings) == 0 || why.Findings[0].Generation != 2 {
				t.Errorf("why: %+v", why.Findings)
			}
		})
	}
}

// agentThat compiles an agent whose service begins with statements of its own.
func agentThat(t *testing.T, statements string) string {
	t.Helper()
	dir := t.TempDir()
	begin, overlay, program := filepath.Join(dir, "begin.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "caisson-agent")
	main, err := filepath.Abs("../../cmd/caisson-agent/begin.go")
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{main: begin}})
	if err != nil {
		t.Fatal(err)
	}
	text := "package main\n\nimport (\n\"net\"\n\"os\"\n\"os/exec\"\n\"time\"\n)\n\nvar _, _, _ = exec.Command, net.Dial, time.Sleep\n\n" +
		"func init() {\n\tif len(os.Args) < 2 || os.Args[1] != \"run\" {\n\t\treturn\n\t}\n\t" + statements + "\n}\n"
	for name, data := range map[string][]byte{begin: []byte(text), overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-ldflags", "-s -w", "-tags", "nethttpomithttp2",
		"-o", program, "../../cmd/caisson-agent")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
