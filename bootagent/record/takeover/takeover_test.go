// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
)

// put writes files below root; a text that begins with "-> " is a link.
func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, at)
		} else {
			err = os.WriteFile(at, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Of the two scripts here the second one's values were written with all there is.
var (
	plain = spec.Exec{Name: "a", Data: "#!/bin/bash\necho hello\n", Rerun: "never"}
	full  = spec.Exec{Name: "b", Data: "#!/bin/bash\ndate >>/tmp/x\n", Args: []string{"a", "b"}, Env: map[string]string{"A": "1", "B": "two words"},
		Timeout: 3600, RerunInterval: 1000000, RetryInterval: 1000000}
)

const (
	plainHash = "b0e9315baa622d58d0df475f68eccef15d39b3c5d2bcb95227bf3a024007d662"
	fullHash  = "1d77274e9d1851fa1cac453493b19a46f129dc7f8fa0762801d3c5f7dcb80244"
)

// host holds the files that Divingbell leaves.
var host = map[string]string{
	"var/divingbell/sysctl/60-divingbell-vm.swappiness.conf":          "vm.swappiness = 60\n",
	"var/divingbell/sysctl/60-divingbell-net.ipv4.tcp_rmem.conf":      "net.ipv4.tcp_rmem = 4096\t131072\t6291456\n",
	"var/divingbell/sysctl/60-divingbell-kernel.x.conf":               "nonsense\n",
	"var/divingbell/ethtool/ens3.tx\\x2dtcp\\x2dsegmentation.service": "ens3 tx-tcp-segmentation on\n",
	"var/divingbell/mounts/mnt-my\\x2ddata.mount":                     "[Unit]\nConflicts=umount.target\n\n[Mount]\nWhat=tmpfs\nWhere=/mnt/my-data/\nType=tmpfs\nOptions=size=8m,noexec\n\n[Install]\nWantedBy=local-fs.target\n",
	"var/divingbell/perm/-srv-a\\x20b":                                "644 /srv/a b\nroot:daemon /srv/a b\n",
	"var/divingbell/perm/-srv-gone":                                   "600 /srv/gone\nUNKNOWN:root /srv/gone\n",
	"var/divingbell/perm/-srv-link":                                   "777 /srv/link\nroot:root /srv/link\n",
	"var/divingbell/perm/0123/exit_code":                              "0\n",
	"var/divingbell/exec/a":                                           "#!/bin/bash\necho hello\n",
	"var/divingbell/exec/" + plainHash + "/exit_code":                 "0\n",
	"var/divingbell/exec/" + plainHash + "/last_run_timestamp":        "1700000000\n",
	"var/divingbell/exec/" + fullHash + "/exit_code":                  "3\n",
	"var/divingbell/exec/" + fullHash + "/last_run_timestamp":         "1700000060\n",
	"var/divingbell/apt/packages":                                     "jq\n",
	"srv/link":                                                        "-> target",
	"etc/sysctl.d/60-divingbell-vm.swappiness.conf":                   "vm.swappiness=10\n",
	"etc/sysctl.d/99-mine.conf":                                       "vm.swappiness=20\n",
	"etc/security/limits.d/60-divingbell-nofile.conf":                 "* - nofile 1024\n",
	"etc/security/limits.d/mine.conf":                                 "* - core 0\n",
	"etc/sudoers.d/divingbell-ann-sudo":                               "ann ALL=(ALL) NOPASSWD:ALL\n",
	"etc/systemd/system/mnt-my\\x2ddata.mount":                        "[Mount]\n",
	"etc/systemd/system/local-fs.target.wants/mnt-my\\x2ddata.mount":  "-> /etc/systemd/system/mnt-my\\x2ddata.mount",
	"etc/systemd/system/ens3.tx\\x2dtcp\\x2dsegmentation.service":     "[Service]\n",
	"etc/systemd/system/mine.service":                                 "[Service]\n",
}

func TestLook(t *testing.T) {
	if found, err := Look(t.TempDir()); found != nil || err != nil {
		t.Fatalf("on a host without Divingbell: %+v, %v", found, err)
	}
	root := t.TempDir()
	put(t, root, host)
	found, err := Look(root)
	if err != nil {
		t.Fatal(err)
	}
	want := spec.Items{
		Sysctl:  []spec.Sysctl{{Key: "net/ipv4/tcp_rmem", Value: "4096\t131072\t6291456"}, {Key: "vm/swappiness", Value: "60"}},
		Ethtool: []spec.Feature{{Interface: "ens3", Feature: "tx-tcp-segmentation", On: true}},
		Mounts:  []spec.Mount{{ID: "divingbell", Device: "tmpfs", Target: "/mnt/my-data", Type: "tmpfs", Options: []string{"size=8m", "noexec"}}},
		Perm:    &spec.Perm{IgnoreMissing: true, Paths: []spec.PermPath{{Path: "/srv/a b", Owner: "root", Group: "daemon", Mode: "0644"}}},
	}
	if d := cmp.Diff(want, found.Originals); d != "" {
		t.Errorf("originals (-want +got):\n%s", d)
	}
	for i, part := range []string{"60-divingbell-kernel.x.conf: not in the form", "-srv-gone: it holds no number", "-srv-link: /srv/link is a link"} {
		if len(found.Doubts) != 3 || !strings.Contains(found.Doubts[i], part) {
			t.Errorf("doubts %q, want %q", found.Doubts, part)
		}
	}
	if !slices.Equal(found.Left, []string{"packages that it installed", "accounts, keys and sudo rules"}) {
		t.Errorf("left %q", found.Left)
	}
}

// The hashes are Divingbell's, made apart from this package.
func TestRan(t *testing.T) {
	root := t.TempDir()
	put(t, root, host)
	found, err := Look(root)
	if err != nil {
		t.Fatal(err)
	}
	if start, exit, ok := found.Ran(plain); !ok || exit != 0 || !start.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("%v, exit %d, %v", start, exit, ok)
	}
	if _, exit, ok := found.Ran(full); !ok || exit != 3 {
		t.Errorf("with all keys: exit %d, %v", exit, ok)
	}
	renamed, other := plain, plain
	renamed.Name, other.Data = "z", "#!/bin/bash\necho other\n"
	if _, _, ok := found.Ran(renamed); !ok {
		t.Error("the name is not a part of Divingbell's hash")
	}
	if _, _, ok := found.Ran(other); ok {
		t.Error("another script ran never")
	}
	if err := os.Remove(root + Records + "/exec/" + plainHash + "/exit_code"); err != nil {
		t.Fatal(err)
	}
	if found, err = Look(root); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := found.Ran(plain); ok {
		t.Error("a run that was cut counts")
	}
}

// sigs.k8s.io/yaml v1.3.0 and sprig v3.2.3 print the right side.
func TestUnquoted(t *testing.T) {
	for text, want := range map[string]string{
		"1000000": "1e+06", "999999": "999999", "1048576": "1.048576e+06", "2e6": "2e+06", "1e3": "1000", "1e-7": "1e-07", "1.50": "1.5", "1.0": "1", ".5": "0.5", "5.": "5", "+5": "5", "-0": "0", "0": "0",
		"007": "7", "08": "8", "09.5": "9.5", "0640": "416", "0o17": "15", "0B11": "3", "0x1F": "31", "-0x10": "-16", "-017": "-15", "1_000": "1000", "1__0": "10", "_1": "_1", "1_000.5": "1000.5", "0x_1": "1",
		"12:30": "12:30", "2020-01-01": "2020-01-01", "y": "true", "N": "false", "yEs": "yEs", "on": "true", "OFF": "false", "True": "true", "tRue": "tRue", "null": "<nil>", "~": "<nil>", "nUll": "nUll", "": "<nil>",
		"18446744073709551615": "1.8446744073709552e+19", "18446744073709551616": "1.8446744073709552e+19", "-9223372036854775809": "-9.223372036854776e+18", "1e400": "1e400", "0x1p4": "0x1p4", "1e": "1e", "-": "-",
		"100000000000000000000000": "1e+23", "123456789.125": "1.23456789125e+08", "3.0e2": "300", "9007199254740993": "9.007199254740992e+15", "a b": "a b", ".": ".", "Infinity": "Infinity", "+Inf": "+Inf",
	} {
		if got := unquoted(text); got != want {
			t.Errorf("%q is printed %q, want %q", text, got, want)
		}
	}
}

// The search has an end, whatever a script has: each key doubles what is hashed, and each
// word that is another one without quotes the number of ways.
func TestTheSearchHasAnEnd(t *testing.T) {
	w := spec.Exec{Name: "a", Data: "#!/bin/bash\n", Env: map[string]string{}}
	for n := range 60 {
		w.Env[string(rune('A'+n))] = "1000000"
		w.Args = append(w.Args, "yes")
	}
	if hash := find(w, func(string) bool { return true }); hash != "" {
		t.Errorf("found %s", hash)
	}
	w.Env, w.Args = nil, nil
	for range 30 {
		w.Args = append(w.Args, "yes")
	}
	tried := 0
	if find(w, func(string) bool { tried++; return false }); tried == 0 {
		t.Error("with many arguments nothing is tried")
	}
}

func TestRetire(t *testing.T) {
	root := t.TempDir()
	put(t, root, host)
	for n, want := range []string{"/var/divingbell.taken-over", "/var/divingbell.taken-over-2"} {
		found, err := Look(root)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := found.Retire()
		if err != nil || kept != want {
			t.Fatalf("kept in %q, %v", kept, err)
		}
		left := func(pattern string) []string {
			names, err := filepath.Glob(root + pattern)
			if err != nil {
				t.Fatal(err)
			}
			return names
		}
		for pattern, files := range map[string]int{"/var/divingbell": 0, "/etc/*/*divingbell-[vn]*": 0, "/etc/security/*/*divingbell*": 0, "/etc/sysctl.d/*": 1, "/etc/security/limits.d/*": 1,
			"/etc/systemd/system/*.mount": 0, "/etc/systemd/system/*/*": 0, "/etc/systemd/system/*.service": 1, "/etc/sudoers.d/*": 1, kept + "/settings/etc/sysctl.d/60-divingbell-*": 1 - n, kept + "/sysctl/*": 3 - 2*n} {
			if got := left(pattern); len(got) != files {
				t.Errorf("%s: %q, want %d", pattern, got, files)
			}
		}
		if n == 0 { // Divingbell came back, and went
			put(t, root, map[string]string{"var/divingbell/sysctl/60-divingbell-vm.swappiness.conf": "vm.swappiness = 60\n"})
		}
	}
}

func TestActive(t *testing.T) {
	const kubelet = "/var/lib/kubelet/pods/0/volumes/kubernetes.io~"
	for _, c := range []struct {
		name, mount, cmdline, ns string
		active                   bool
	}{
		{"nothing", "/mnt", "/sbin/init", "other", false},
		{"a pod's process", "/mnt", "/bin/bash\x00/tmp/sysctl.sh\x00", "other", true},
		{"a pod's process without bash", "/mnt", "/tmp/exec.sh\x00", "other", true},
		{"a user's script of that name", "/mnt", "/bin/bash\x00/tmp/exec.sh\x00", "own", false},
		{"another container's", "/mnt", "/bin/bash\x00/tmp/start.sh\x00", "other", false},
		{"an argument", "/mnt", "vi\x00-R\x00/tmp/exec.sh\x00", "other", false},
		{"a pod that waits to be started", kubelet + "secret/divingbell-perm-default", "", "own", true},
		{"an older release", kubelet + "configmap/divingbell-perm", "", "own", true},
		{"another pod", kubelet + "secret/default-token", "", "own", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			proc := t.TempDir()
			put(t, proc, map[string]string{"self/mountinfo": "1 0 0:1 / " + c.mount + " rw - tmpfs tmpfs rw\n", "self/ns/mnt": "-> own", "77/cmdline": c.cmdline, "77/ns/mnt": "-> " + c.ns})
			err := Active(proc)
			var active *ActiveError
			if c.active != errors.As(err, &active) || !c.active && err != nil {
				t.Errorf("got %v", err)
			}
			if c.active && !strings.Contains(active.Hint(), "helm uninstall") {
				t.Errorf("hint %q", active.Hint())
			}
		})
	}
}

// Records are another program's: nothing in them may be more than a doubt.
func FuzzRecords(f *testing.F) {
	for name, text := range host {
		if strings.HasPrefix(name, "var/divingbell/") {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		found := &Found{root: t.TempDir(), runs: map[string]run{}}
		for _, read := range []func(string, string) error{found.sysctl, found.ethtool, found.mount, found.perm} {
			_ = read("x", text) // an error is an answer
		}
		if p := found.Originals.Perm; p != nil && !strings.HasPrefix(p.Paths[0].Path, "/") {
			t.Errorf("a path %q", p.Paths[0].Path)
		}
	})
}
