// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

const testKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f test"

func testRecipe() spec.Recipe {
	return spec.Recipe{
		Fleet: "test", Arch: "amd64", Kernel: "linux-image-cloud-amd64",
		Base:     spec.Base{Debian: &spec.Debian{Suite: "trixie", Components: []string{"main"}}},
		Packages: spec.Packages{Install: []spec.Package{{Name: "tree"}}},
		Accounts: spec.Accounts{Users: []spec.User{{Name: "alice", Sudo: true, Keys: []string{testKey}}}},
		AppArmor: spec.AppArmor{Profiles: []spec.Profile{{File: "usr.bin.tree", Text: "abi <abi/4.0>,\ninclude <tunables/global>\nprofile tree /usr/bin/tree {\n  include <abstractions/base>\n  /** r,\n}\n"}}},
	}
}

// testOptions builds into the shared cache.
func testOptions(t testing.TB) Options {
	t.Helper()
	require.Root(t)
	require.Net(t)
	require.Tool(t, "mmdebstrap", "mksquashfs", "xz", "apt-get", "dpkg-deb")
	if err := reachable(); err != nil {
		require.Missing(t, "net", err.Error())
	}
	agent := filepath.Join(t.TempDir(), "caisson-agent")
	if err := os.WriteFile(agent, []byte(elfHeader("\x02", "\x3e")), 0o755); err != nil {
		t.Fatal(err)
	}
	return Options{CacheDir: sharedCache, Agent: agent, Fast: true, SiteDir: t.TempDir(), Progress: func(e Event) {
		if e.State != "install" && e.State != "fetch" {
			t.Logf("%+v", e)
		}
	}}
}

// elfHeader is the head of a program without segments. Kind 2 is an executable,
// machine 0x3e is amd64, 0xb7 arm64.
func elfHeader(kind, machine string) string {
	return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + kind + "\x00" + machine + "\x00\x01" + strings.Repeat("\x00", 43)
}

// reachable asks once whether the host's archive answers. It asks with apt's own
// helper, not with the builder, whose mistakes would look like an absence.
var reachable = sync.OnceValue(func() error {
	archives, err := apt.Debian(*testRecipe().Base.Debian, "/")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "caisson-reachable-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // the next build clears what is left
	for _, a := range archives {
		uri := strings.TrimRight(a.URI, "/") + "/dists/" + a.Suites[0] + "/InRelease"
		cmd := exec.Command("/usr/lib/apt/apt-helper", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "APT::Sandbox::User=root", "download-file", uri, filepath.Join(dir, "InRelease"))
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("the archive of packages does not answer: %s", said)
		}
	}
	return nil
})

func TestBuild(t *testing.T) {
	o := testOptions(t)
	o.Ledger, _ = Settle([]spec.Recipe{testRecipe()}, nil)
	result, err := Build(context.Background(), testRecipe(), "default", "1", o)
	if err != nil {
		t.Fatal(err)
	}
	l := result.Layer
	names := []string{}
	for _, i := range l.Images {
		names = append(names, i.Name)
		t.Logf("%s %d bytes", i.Name, i.Size)
		blob := result.Blobs[slices.IndexFunc(result.Blobs, func(b Blob) bool { return b.Title == i.Name })]
		if root, err := rootOf(filepath.Dir(blob.Path), i); err != nil || l.Roots[i.Digest] != root {
			t.Errorf("image %s: root %q, want %q: %v", i.Name, l.Roots[i.Digest], root, err)
		}
	}
	if len(names) != 5 || l.Kernel.Release == "" || l.Initrd.Size == 0 || len(accounts.People(l.Accounts)) != 1 || l.Accounts[0].UID != 1000 {
		t.Errorf("layer is not whole: images %v, kernel %+v, initrd %+v, accounts %+v", names, l.Kernel, l.Initrd, l.Accounts)
	}

	// Users and packages of another layer of the fleet come, and leave: this one is the same.
	o.Lock, o.Ledger = &result.Lock, append(slices.Clone(result.Ledger),
		spec.Account{Name: "kim", UID: 1001, GID: 1001, State: "active"}, spec.Account{Name: "left", UID: 1002, GID: 1002, State: "expired"},
		spec.Account{Name: "racked", UID: 777, GID: 777, State: "system"}, spec.Account{Name: "racked", UID: -1, GID: 777, State: "system-group"})
	o.Ledger = accounts.Leave(o.Ledger, l.Accounts)
	var made []string
	o.Progress = func(e Event) {
		if e.State == "start" {
			made = append(made, e.Step)
		}
	}
	again, err := Build(t.Context(), testRecipe(), "default", "1", o)
	if err != nil {
		t.Fatal(err)
	}
	was, err1 := spec.Encode(l)
	is, err2 := spec.Encode(again.Layer)
	if err := errors.Join(err1, err2); err != nil || string(was) != string(is) || made != nil {
		t.Errorf("with others in the ledger %v is made again, and the layer is %s, it was %s; %v", made, is, was, err)
	}
	if !slices.ContainsFunc(again.Ledger, func(a spec.Account) bool { return a.Name == "racked" }) || !slices.ContainsFunc(again.Ledger, func(a spec.Account) bool { return a.Name == "left" }) {
		t.Errorf("the ledger has lost who is elsewhere: %+v", again.Ledger)
	}
	asks(t, o, l.Images)
	hints(t, result)
}

// asks builds again with what nodes write over the layer: its programs are asked.
func asks(t *testing.T, o Options, images []spec.Image) {
	const units = "/etc/systemd/system/"
	text := func(path, content string) Text { return Text{path, content, "site.yaml:7:5"} }
	o.Written = [][]Text{{
		text("/etc/sudoers.d/ops", "User_Alias OPS = ann\nOPS ALL=(ALL) ALL\n"), text("/etc/ssh/sshd_config.d/10-x.conf", "PermitRootLogin no\n"), text("/etc/motd", "NOPASWD"),
		text(units+"good.service", "[Service]\nExecStart=/usr/bin/sleep %H %m\nExecStart=-/opt/x\nType=oneshot\n[Install]\nWantedBy=multi-user.target\n"),
		text(units+"good@.service", "[Service]\nExecStart=/usr/bin/sleep %i\n"), text(units+"good.timer", "[Timer]\nOnCalendar=daily\n"),
		text(units+"ssh.service.d/x.conf", "[Service]\nRestartSec=5\n"),
	}}
	if _, err := Build(t.Context(), testRecipe(), "default", "1", o); err != nil {
		t.Errorf("what is right: %v", err)
	}
	bad := map[string]Text{
		"/usr/sbin/visudo does not take it: /etc/sudoers.d/ops:1":                  text("/etc/sudoers.d/ops", "ann ALL=(ALL) NOPASWD ALL\n"),
		"line 1: Bad configuration option: PermitRootLogn":                         text("/etc/ssh/sshd_config.d/10-x.conf", "PermitRootLogn no\n"),
		"bad.service:2: Failed to parse Restart=sometimes":                         text(units+"bad.service", "[Service]\nRestart=sometimes\nExecStart=/usr/bin/true\n"),
		"gone.service: Command /usr/bin/nothere is not executable":                 text(units+"gone.service", "[Service]\nExecStart=/usr/bin/nothere\n"),
		"twice.timer:2: Failed to parse calendar specification, ignoring: someday": text(units+"twice.timer", "[Timer]\nOnCalendar=someday\n"),
		"t@.service:3: Unknown key":                                                text(units+"t@.service", "[Service]\nExecStart=/usr/bin/true\nFoo=1\n"),
		"ssh.service: Service has more than one ExecStart= setting":                text(units+"ssh.service.d/x.conf", "[Service]\nExecStart=/usr/bin/true\n"),
		"getty@.service.d/x.conf:2: Unknown key":                                   text(units+"getty@.service.d/x.conf", "[Service]\nFoo=1\n"),
	}
	o.Written = [][]Text{slices.Collect(maps.Values(bad)), o.Written[0]}
	_, err := Build(t.Context(), testRecipe(), "default", "1", o)
	why, kept := AskKept(t.Context(), images, o)
	if err == nil || kept == nil || why != "" || err.Error() != kept.Error() {
		t.Fatalf("refused when it is built: %v; later: %v %s", err, kept, why)
	}
	for want, place := range map[string]string{"the layer was not built with this cache": t.TempDir(), "the cache has no more of the layer": o.CacheDir} {
		other := slices.Clone(images)
		other[0].Digest = "sha256:" + strings.Repeat("0", 64)
		if why, err := AskKept(t.Context(), other, Options{CacheDir: place, Written: o.Written}); why != want || err != nil {
			t.Errorf("%s: %q, %v", want, why, err)
		}
	}
	if why, err := AskKept(t.Context(), images, Options{CacheDir: t.TempDir(), Written: [][]Text{{text("/etc/motd", "x")}}}); why != "" || err != nil {
		t.Errorf("nothing to ask: %q, %v", why, err)
	}
	for says, of := range bad {
		if want := "site.yaml:7:5: " + of.Path + ": "; !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), says) {
			t.Errorf("not said: %s %s in\n%v", want, says, err)
		}
	}
	if n := strings.Count(err.Error(), "site.yaml:7:5"); n != len(bad) {
		t.Errorf("%d refused, want %d: %v", n, len(bad), err)
	}
}

// hints has apt of a node asked for a package that it does not know.
func hints(t *testing.T, built *Result) {
	node := &root.Root{Work: t.TempDir()}
	for _, image := range []string{stepPackages, stepBase} {
		blob := built.Blobs[slices.IndexFunc(built.Blobs, func(b Blob) bool { return b.Title == image })]
		node.Lowers = append(node.Lowers, filepath.Join(filepath.Dir(blob.Path), "tree"))
	}
	const hint = "packages of this system come with its layer"
	for script, hinted := range map[string]bool{"": false, "sed 's/-w/-c/' -i /etc/apt/apt.conf.d/90caisson; ": true} { // the second as where /usr takes no writes
		err := node.Run(t.Context(), root.Command{Args: []string{"/bin/sh", "-c", script + "apt-get install bash && { apt-get install nothere; exit 1; }"}})
		exit := new(root.ExitError)
		if !errors.As(err, &exit) || !strings.Contains(exit.Output, "Unable to locate package nothere") || strings.Contains(exit.Output, "hook") || strings.Contains(exit.Output, hint) != hinted {
			t.Errorf("%q: %v: %s", script, err, exit.Output)
		}
	}
}

// TestPublic: a private key in a layer is an error that names it, unless the site does.
func TestPublic(t *testing.T) {
	b := &build{done: map[string]made{
		stepBase:     {Facts: facts{Private: map[string]string{"/etc/a.key": "made by a script"}}},
		stepPackages: {Facts: facts{Private: map[string]string{"/etc/b.key": "of package b"}}},
	}}
	b.options.Private = []string{"/etc/a.key"}
	if err := b.public(); err == nil || !strings.HasSuffix(err.Error(), ": /etc/b.key (of package b)") {
		t.Error(err)
	}
	b.options.Private = []string{"/etc/b.key", "/etc/a.key"}
	if err := b.public(); err != nil {
		t.Error(err)
	}
}
