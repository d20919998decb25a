// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// planted is a setting of one kind that an example lacks, and how a node without it is told.
type planted struct {
	part  string // as bisect names it
	under string // the key of the site, which may be there: a kind below conf, or one of the three below
	text  string // below that key
	check string // passes without it
}

// Keys of a site that are no kind of settings.
const (
	kernelWord = "kernel.args"
	aPackage   = "apt"
	aUser      = "uamlite"
)

// kinds has a setting of each kind. A package and a user are images of the layer: they come together.
var kinds = []planted{
	{"sysctl/vm.overcommit_ratio", "sysctl", "    vm.overcommit_ratio: 61\n", "test $(sysctl -n vm.overcommit_ratio) -ne 61"},
	{"sysfs//sys/kernel/mm/ksm/pages_to_scan", "sysfs", "    /sys/kernel/mm/ksm/pages_to_scan: 61\n", "test $(cat /sys/kernel/mm/ksm/pages_to_scan) -ne 61"},
	{"files//etc/motd.d/planted", "files", "    /etc/motd.d/planted: {content: planted}\n", "test ! -e /etc/motd.d/planted"},
	{"units/planted.service", "units", "    planted.service: {content: \"[Service]\\nExecStart=sleep infinity\\n\", run: started}\n", "! systemctl is-active -q planted.service"},
	{"exec/50-planted", "exec", "    50-planted:\n      rerun_policy: once_successfully\n      data: \"#!/bin/sh\\necho planted >/run/planted\\n\"\n      revert: \"#!/bin/sh\\nrm -f /run/planted\\n\"\n", "test ! -e /run/planted"},
	{"limits/planted", "limits", "    planted: {domain: nobody, type: soft, item: nofile, value: 61}\n", "! grep -qrs nobody /etc/security/limits.d"},
	{"mounts/planted", "mounts", "    planted: {mnt_tgt: /srv/planted, device: tmpfs, type: tmpfs, options: size=1m}\n", "! mountpoint -q /srv/planted"},
	{"kernelArgs", kernelWord, "planted=1", "! grep -q planted=1 /proc/cmdline"},
	{"layer/packages", aPackage, "      - {name: bc}\n", "! command -v bc"},
	{"layer/accounts", aUser, "      - {user_name: eve}\n", "! getent passwd eve | grep -v /nologin$"}, // who left stays, without a shell
}

// plant returns a site with one of them more.
func (p planted) plant(site string) string {
	before := func(mark, text string) string { return strings.Replace(site, mark, text+mark, 1) }
	after := func(mark, text string) string { return strings.Replace(site, mark, mark+text, 1) }
	switch list := map[string]string{aPackage: "packages:\n", aUser: "users:\n"}[p.under]; {
	case p.under == kernelWord && strings.Contains(site, "\nmachine:\n  kernel: {args: ["):
		return after("\nmachine:\n  kernel: {args: [", p.text+", ")
	case p.under == kernelWord:
		return before("\nconf:\n", "\nmachine: {kernel: {args: ["+p.text+"]}}")
	case list != "" && strings.Contains(site, "\n  "+p.under+":\n    "+list):
		return after("\n  "+p.under+":\n    "+list, p.text)
	case list != "":
		return after("\nconf:\n", "  "+p.under+":\n    "+list+p.text)
	case strings.Contains(site, "\n  "+p.under+":\n"):
		return after("\n  "+p.under+":\n", p.text)
	}
	return after("\nconf:\n", "  "+p.under+":\n"+p.text)
}

// The node of an example goes through a setting of each kind that was drawn: the change is rehearsed, and comes
// back; a rollout wants its statement, and takes it. Then the settings are published in three generations, in an
// order that is drawn, and bisect finds one of them that is drawn, with its line of the site.
func TestLongExampleQuickstart(t *testing.T) {
	require.Long(t)
	through(t, "quickstart", "beta", "service restart", []string{kernelWord, aPackage, aUser})
}
func TestLongExampleDiskless(t *testing.T) {
	require.Long(t)
	through(t, "diskless", "worker-1", "soft-reboot", []string{kernelWord}, "--memory", "4G")
}
func TestLongExampleRack(t *testing.T) { // its address is static
	require.Long(t)
	through(t, "rack", "control-1", "kexec", nil)
}

// through takes a node of an example through a change of a class, without the kinds that need more than it.
func through(t *testing.T, example, node, class string, without []string, more ...string) {
	t.Helper()
	f := published(t, example, node)
	have := slices.DeleteFunc(slices.Clone(kinds), func(p planted) bool { return slices.Contains(without, p.under) })
	rand.Shuffle(len(have), func(i, j int) { have[i], have[j] = have[j], have[i] })
	f.rehearseAll(t, node, class, have, more...)
	f.findPlanted(t, node, have)
}

// published is an example whose nodes are published, with a rollout that wants rehearsals.
func published(t *testing.T, example, node string) *Fleet {
	t.Helper()
	needs(t)
	f := &Fleet{Dir: t.TempDir(), Bin: programs(t), Show: t.Output()}
	from := "../../examples/" + example
	if err := f.UseExample(from + "/site.yaml"); err != nil {
		t.Fatal(err)
	}
	if inventory, err := os.ReadFile(from + "/nodes.yaml"); err == nil {
		f.writes(t, "nodes.yaml", string(inventory))
		f.edit(t, "    operator: [", "    attestation: keys/attestation.pub\n    operator: [")
	}
	f.edit(t, "args: [console=ttyS0", "args: [no_timer_check, systemd.mask=user@.service, "+strings.Join(lean, ", ")+", console=ttyS0")
	f.writes(t, "site.yaml", f.reads(t, "site.yaml")+"---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: roll}\nspec: {waves: [{hosts: ["+node+"]}, {rest: true}], rehearsed: settings}\n")
	for _, role := range []string{"release", "operator", "operator-standby", "attestation"} {
		f.must(t, "keys", "generate", "keys/"+role)
	}
	if strings.Contains(f.reads(t, "site.yaml"), "10-hello:\n") { // else it is left behind
		f.edit(t, "    10-hello:\n", "    10-hello:\n      revert: \"#!/bin/sh\\nrm -f /run/hello\\n\"\n")
	}
	f.build(t)
	f.publish(t)
	return f
}

func (f *Fleet) reads(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(f.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (f *Fleet) writes(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.Dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// gives has the site have some settings more, with the layer that it then has: the newest in the registry may be
// another one.
func (f *Fleet) gives(t *testing.T, more []planted, builds bool) {
	t.Helper()
	site := f.reads(t, "site.yaml")
	for _, p := range more {
		site = p.plant(site)
	}
	f.writes(t, "site.yaml", site)
	if builds {
		f.build(t)
	}
}

func (p planted) inLayer() bool { return strings.HasPrefix(p.part, "layer/") }

// rehearseAll rehearses all of them at once, and has a rollout want that before it takes its statement.
func (f *Fleet) rehearseAll(t *testing.T, node, class string, have []planted, more ...string) {
	t.Helper()
	base := f.reads(t, "site.yaml")
	f.gives(t, have, slices.ContainsFunc(have, planted.inLayer))
	start := []string{"rollout", "start", "roll", "site.yaml", "--to", f.To(), "--key", "keys/operator.key", "--dry-run"}
	lacks := "the change of " + node + " is not rehearsed"
	if said := f.must(t, start...); !strings.Contains(said, lacks) {
		t.Errorf("before: %s", said)
	}
	for _, p := range have {
		more = append(more, "--check", "! ( "+p.check+" )")
	}
	f.rehearseOn(t, node, class, nil, append(more, "--push", "--attest-key", "keys/attestation.key")...)
	if said := f.must(t, start...); strings.Contains(said, lacks) {
		t.Errorf("with a statement: %s", said)
	}
	f.writes(t, "site.yaml", base)
}

// findPlanted publishes them in three generations and has bisect find one of them, which is not known before. A
// search of one machine a run goes on where it was, and leaves nothing.
func (f *Fleet) findPlanted(t *testing.T, node string, have []planted) {
	t.Helper()
	layered := slices.DeleteFunc(slices.Clone(have), func(p planted) bool { return !p.inLayer() })
	have = slices.DeleteFunc(have, planted.inLayer)
	third := (len(have) + 2) / 3
	generations := [][]planted{have[:third], have[third : 2*third], have[2*third:]}
	with := rand.N(len(generations))
	generations[with] = append(slices.Clone(generations[with]), layered...)
	for i, more := range generations {
		f.gives(t, more, len(layered) > 0)
		f.publish(t, "--reason", "step "+string(rune('2'+i)))
	}
	in := rand.N(len(generations))
	fault := generations[in][rand.N(len(generations[in]))]
	bad := string(rune('2' + in))
	t.Logf("planted: %s in generation %s", fault.part, bad)
	search := []string{"bisect", "site.yaml", "--from", f.To(), "--node", node, "--good", "1", "--check", fault.check, "--timeout", "2h", "--cache", f.Dir + "/cache", "-o", "json"}
	if out, err := f.Caisson(t.Context(), append(search, "--most", "1")...); err == nil || !strings.Contains(err.Error(), "the same command goes on") {
		t.Fatalf("%v\n%s", err, out)
	}
	out := f.must(t, search...)
	var got struct {
		Good, Bad, Reason string
		Parts             []struct {
			Name   string
			Origin *struct {
				File string
				Line int
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Bad != "0-"+bad || got.Good != "0-"+string(rune(bad[0]-1)) || got.Reason != "step "+bad || len(got.Parts) != 1 || got.Parts[0].Name != fault.part {
		t.Fatalf("%s", out)
	}
	switch at, lines := got.Parts[0].Origin, strings.Split(f.reads(t, "site.yaml"), "\n"); {
	case fault.inLayer():
	case at == nil || filepath.Base(at.File) != "site.yaml" || !strings.Contains(lines[at.Line-1], strings.Trim(strings.SplitN(fault.text, ": ", 2)[0], " :\n")):
		t.Errorf("where the site has %s: %s", fault.text, out)
	}
	if left, _ := filepath.Glob(filepath.Join(f.Dir, "cache/bisect/*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
