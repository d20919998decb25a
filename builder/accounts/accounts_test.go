// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

const (
	key     = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f test"
	skKey   = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4fAAAABHNzaDo= sk"
	yescr   = "$y$j9T$abcdefghijklmnopqrstu.$ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./abcde"
	epoch   = 20000 * 86400
	passwd  = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/usr/sbin:/usr/sbin/nologin\nubuntu:x:1005:1005::/home/ubuntu:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n"
	group   = "root:x:0:\nshadow:x:42:\nwheel:x:10:\nsudo:x:27:root\nubuntu:x:1005:\nnogroup:x:65534:\n"
	shadow  = "root:*:20000:0:99999:7:::\ndaemon:*:20000:0:99999:7:::\nubuntu:!:20000:0:99999:7:::\n"
	gshadow = "root:*::\nsudo:*::root\n"
)

// tree is a lower tree with the usual files, and an upper one.
func tree(t *testing.T) *root.Root {
	t.Helper()
	require.Root(t)
	lower := t.TempDir()
	for name, text := range map[string]string{"etc/passwd": passwd, "etc/group": group, "etc/shadow": shadow, "etc/gshadow": gshadow, "etc/skel/.profile": "# profile\n"} {
		if err := os.MkdirAll(filepath.Join(lower, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(lower, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shell := filepath.Join(lower, "bin/sh")
	if err := errors.Join(os.Mkdir(filepath.Dir(shell), 0o755), os.WriteFile(shell, nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	return &root.Root{Lowers: []string{lower}, Upper: t.TempDir(), Work: t.TempDir()}
}

func read(t *testing.T, r *root.Root, name string) string {
	t.Helper()
	data, err := r.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// line is the row of a name in a file.
func line(t *testing.T, r *root.Root, file, name string) string {
	t.Helper()
	for l := range strings.Lines(read(t, r, file)) {
		if strings.HasPrefix(l, name+":") {
			return strings.TrimSpace(l)
		}
	}
	return ""
}

func bake(t *testing.T, r *root.Root, a spec.Accounts, previous []spec.Account) []spec.Account {
	t.Helper()
	fleet, err := Settle([]spec.Accounts{a}, previous)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Bake(context.Background(), r, a, Leave(fleet, previous), epoch)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestBake(t *testing.T) {
	r := tree(t)
	rows := bake(t, r, spec.Accounts{Users: []spec.User{
		{Name: "first.last", Sudo: true, Keys: []string{key, skKey}, Groups: []string{"wheel", "sudo"}},
		{Name: "bob", Password: yescr, Shell: "/bin/sh"},
	}}, nil)
	if want := []spec.Account{{Name: "bob", UID: 1001, GID: 1001, State: "active"}, {Name: "first.last", UID: 1000, GID: 1000, State: "active"}}; !slices.Equal(rows, want) {
		t.Errorf("ledger %+v, want %+v", rows, want)
	}
	for _, want := range []struct{ file, name, line string }{
		{"/etc/passwd", "first.last", "first.last:x:1000:1000::/home/first.last:/bin/bash"},
		{"/etc/passwd", "bob", "bob:x:1001:1001::/home/bob:/bin/sh"},
		{"/etc/passwd", "root", "root:x:0:0:root:/root:/bin/bash"},
		{"/etc/shadow", "first.last", "first.last:*:20000:0:99999:7:::"},
		{"/etc/shadow", "bob", "bob:" + yescr + ":20000:0:99999:7:::"},
		{"/etc/group", "wheel", "wheel:x:10:first.last"},
		{"/etc/group", "sudo", "sudo:x:27:first.last,root"},
		{"/etc/group", "bob", "bob:x:1001:"},
		{"/etc/subuid", "first.last", "first.last:100000:65536"},
		{"/etc/subgid", "bob", "bob:165536:65536"},
	} {
		if got := line(t, r, want.file, want.name); got != want.line {
			t.Errorf("%s: %q, want %q", want.file, got, want.line)
		}
	}
	for _, want := range []struct {
		name     string
		mode     os.FileMode
		uid, gid uint32
	}{
		{"/etc/shadow", 0o640, 0, 42}, {"/etc/passwd", 0o644, 0, 0}, {"/home/bob", 0o700 | os.ModeDir, 1001, 1001}, {"/home/bob/.profile", 0o644, 1001, 1001},
		{"/etc/sudoers.d/60-caisson-first_2elast", 0o440, 0, 0}, {"/etc/ssh/authorized_keys.d/first.last", 0o644, 0, 0},
	} {
		info, err := r.Lstat(want.name)
		if err != nil {
			t.Error(err)
			continue
		}
		st := info.Sys().(*syscall.Stat_t)
		if info.Mode() != want.mode || st.Uid != want.uid || st.Gid != want.gid {
			t.Errorf("%s: %v %d:%d, want %v %d:%d", want.name, info.Mode(), st.Uid, st.Gid, want.mode, want.uid, want.gid)
		}
	}
	if got := read(t, r, "/etc/ssh/authorized_keys.d/first.last"); got != key+"\n"+skKey+"\n" {
		t.Errorf("keys %q", got)
	}
	if _, err := r.Lstat("/etc/ssh/authorized_keys.d/bob"); err == nil {
		t.Error("bob's keys are unmanaged, but a file was written")
	}
	if got := read(t, r, unmanagedFile); !strings.Contains(got, "Match User bob\n") {
		t.Errorf("sshd reads the homes by %q, want bob's alone", got)
	}
	if _, err := r.Lstat("/etc/sudoers.d/60-caisson-bob"); err == nil {
		t.Error("bob may sudo: the setting of the user before leaked")
	}
}

// A user leaves, others come, the user returns: no number is ever another's.
func TestLedger(t *testing.T) {
	users := func(names ...string) spec.Accounts {
		var a spec.Accounts
		for _, n := range names {
			a.Users = append(a.Users, spec.User{Name: n})
		}
		return a
	}
	r := tree(t)
	one := bake(t, r, users("ann", "ben"), nil)

	r = tree(t)
	two := bake(t, r, users("ben", "cid"), one)
	want := []spec.Account{{Name: "ann", UID: 1000, GID: 1000, State: "expired"}, {Name: "ben", UID: 1001, GID: 1001, State: "active"}, {Name: "cid", UID: 1002, GID: 1002, State: "active"}}
	if !slices.Equal(two, want) {
		t.Fatalf("after ann left: %+v, want %+v", two, want)
	}
	if got := line(t, r, "/etc/shadow", "ann"); got != "ann:!*:20000:0:99999:7::1:" {
		t.Errorf("ann has left, but shadow says %q", got)
	}
	if got := line(t, r, "/etc/passwd", "ann"); got != "ann:x:1000:1000::/home/ann:/usr/sbin/nologin" {
		t.Errorf("ann has left, but passwd says %q", got)
	}
	if _, err := r.Lstat("/home/ann"); err == nil {
		t.Error("ann has left, but the layer has a home")
	}

	r = tree(t)
	gone := users("ben", "dee")
	gone.PurgeExpired = true
	three := bake(t, r, gone, two)
	want = []spec.Account{{Name: "ann", UID: 1000, GID: 1000, State: "purged"}, {Name: "ben", UID: 1001, GID: 1001, State: "active"},
		{Name: "cid", UID: 1002, GID: 1002, State: "purged"}, {Name: "dee", UID: 1003, GID: 1003, State: "active"}}
	if !slices.Equal(three, want) {
		t.Fatalf("after the purge: %+v, want %+v", three, want)
	}
	if got := line(t, r, "/etc/passwd", "ann"); got != "" {
		t.Errorf("ann was purged, but passwd has %q", got)
	}

	r = tree(t)
	four := bake(t, r, users("ann", "eve"), three)
	if i := slices.IndexFunc(four, func(a spec.Account) bool { return a.Name == "ann" }); four[i].UID != 1000 || four[i].State != "active" {
		t.Errorf("ann returned as %+v", four[i])
	}
	if i := slices.IndexFunc(four, func(a spec.Account) bool { return a.Name == "eve" }); four[i].UID != 1004 {
		t.Errorf("eve is %+v, want the first number that nobody ever had", four[i])
	}
}

// Two variants with different users agree on the numbers, in whatever order.
func TestSettleVariants(t *testing.T) {
	a := spec.Accounts{Users: []spec.User{{Name: "ann"}, {Name: "low", UID: 1000}}}
	b := spec.Accounts{Users: []spec.User{{Name: "ben"}, {Name: "ann"}}}
	rows, err := Settle([]spec.Accounts{a, b}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(rows)
	if want := "[{ann 1001 1001 active} {ben 1002 1002 active} {low 1000 1000 active}]"; got != want {
		t.Errorf("got %s, want %s: a number that is asked for is not given to another", got, want)
	}
	if got, want := fmt.Sprint(view(b, rows)), "[{ann 1001 1001 active} {ben 1002 1002 active} {low 1000 1000 purged}]"; got != want {
		t.Errorf("variant b has %s, want %s", got, want)
	}
}

// A layer has its own users and those who left it, whatever the fleet has: users of
// other layers come, leave and are purged without a word of it.
func TestPresent(t *testing.T) {
	fleet := []spec.Account{{Name: "ann", UID: 1000, GID: 1000, State: "active"}, {Name: "kim", UID: 1001, GID: 1001, State: "active"},
		{Name: "left", UID: 1002, GID: 1002, State: "expired"}, {Name: "sshd", UID: 101, GID: 101, State: "system"}, {Name: "ubuntu", UID: 1003, GID: 1003, State: "purged"}}
	ann := spec.Accounts{Users: []spec.User{{Name: "ann"}}}
	purge := spec.Accounts{Users: ann.Users, PurgeExpired: true}
	for _, c := range []struct {
		name   string
		a      spec.Accounts
		before []spec.Account
		want   string
	}{
		{"somebody else has left", ann, []spec.Account{{Name: "ann", State: "active"}}, "[{ann 1000 1000 active}]"},
		{"she has left", ann, []spec.Account{{Name: "left", State: "active"}}, "[{ann 1000 1000 active} {left 1002 1002 expired}]"},
		{"she has left long ago", ann, []spec.Account{{Name: "left", State: "expired"}}, "[{ann 1000 1000 active} {left 1002 1002 expired}]"},
		{"she is a user of others from now on", ann, []spec.Account{{Name: "kim", State: "active"}}, "[{ann 1000 1000 active} {kim 1001 1001 expired}]"},
		{"she has left, and is a user of others again", ann, []spec.Account{{Name: "kim", State: "expired"}}, "[{ann 1000 1000 active} {kim 1001 1001 expired}]"},
		{"she was purged", ann, []spec.Account{{Name: "left", State: "purged"}}, "[{ann 1000 1000 active}]"},
		{"she is to be purged", purge, []spec.Account{{Name: "left", State: "expired"}}, "[{ann 1000 1000 active}]"},
	} {
		if got := fmt.Sprint(Present(c.a, Leave(fleet, c.before))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A user who has no number of the site's asking, and a package's account that has the
// number, are told apart by an error that names both.
func TestTaken(t *testing.T) {
	r := tree(t)
	_, err := Bake(context.Background(), r, spec.Accounts{Users: []spec.User{{Name: "ann"}}}, []spec.Account{{Name: "ann", UID: 1005, GID: 1005, State: "active"}}, epoch)
	var taken *Taken
	if !errors.As(err, &taken) || *taken != (Taken{"ann", 1005, "ubuntu"}) {
		t.Errorf("%v", err)
	}
}

// An account that a package made and a site managed for a time is the package's
// again when the site leaves it out.
func TestPackageAccountLeftOut(t *testing.T) {
	left := []spec.Account{{Name: "ubuntu", UID: 1005, GID: 1005, State: "active"}, {Name: "gone", UID: 1006, GID: 1006, State: "active"}}
	r := tree(t)
	bake(t, r, spec.Accounts{}, left)
	if got := line(t, r, "/etc/passwd", "ubuntu"); got != "ubuntu:x:1005:1005::/home/ubuntu:/bin/bash" {
		t.Errorf("the package's account became %q", got)
	}
	if got := line(t, r, "/etc/passwd", "gone"); !strings.HasSuffix(got, "nologin") {
		t.Errorf("a user who left is %q", got)
	}
}

func TestRefused(t *testing.T) {
	full := []spec.Account{}
	for uid := firstUID; uid <= lastUID; uid++ {
		full = append(full, spec.Account{Name: fmt.Sprintf("u%d", uid), UID: uid, GID: uid, State: statePurged})
	}
	tests := []struct {
		name     string
		users    []spec.User
		previous []spec.Account
		want     string
	}{
		{"a system account", []spec.User{{Name: "daemon"}}, nil, "system account"},
		{"root", []spec.User{{Name: "root"}}, nil, "system account"},
		{"a group's name", []spec.User{{Name: "wheel"}}, nil, "group of that name"},
		{"a colon", []spec.User{{Name: "a:b"}}, nil, "not a user or group name"},
		{"a path", []spec.User{{Name: "../etc"}}, nil, "not a user or group name"},
		{"twice", []spec.User{{Name: "ann"}, {Name: "ann"}}, nil, "named twice"},
		{"a clear password", []spec.User{{Name: "ann", Password: "secret"}}, nil, "crypt(5)"},
		{"a line break in a hash", []spec.User{{Name: "ann", Password: "*\nroot::"}}, nil, "crypt(5)"},
		{"no key", []spec.User{{Name: "ann", Keys: []string{"ssh-ed25519 AAAA"}}}, nil, "SSH key 1"},
		{"two keys in one", []spec.User{{Name: "ann", Keys: []string{key + "\n" + key}}}, nil, "a key is one line"},
		{"unknown group", []spec.User{{Name: "ann", Groups: []string{"nope"}}}, nil, `group "nope"`},
		{"a shell that is not there", []spec.User{{Name: "ann", Shell: "/usr/bin/zsh"}}, nil, "/usr/bin/zsh is not in the layer"},
		{"a shell that does not run", []spec.User{{Name: "ann", Shell: "/etc"}}, nil, "/etc is not in the layer"},
		{"a relative shell", []spec.User{{Name: "ann", Shell: "bash"}}, nil, "absolute path"},
		{"a UID of the base", []spec.User{{Name: "ann", UID: 1005}}, nil, `belongs to "ubuntu"`},
		{"a UID of one who left", []spec.User{{Name: "ann", UID: 1000}}, []spec.Account{{Name: "old", UID: 1000, GID: 1000, State: "purged"}}, `belongs to "old"`},
		{"another UID than before", []spec.User{{Name: "ann", UID: 1001}}, []spec.Account{{Name: "ann", UID: 1000, GID: 1000, State: "active"}}, "for ever"},
		{"a system UID", []spec.User{{Name: "ann", UID: 12}}, nil, "outside"},
		{"no UID left", []spec.User{{Name: "ann"}}, full, "given away"},
		{"a broken ledger", nil, []spec.Account{{Name: "a", UID: 1000}, {Name: "b", UID: 1000}}, "belongs to"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := tree(t)
			a := spec.Accounts{Users: test.users}
			fleet, err := Settle([]spec.Accounts{a}, test.previous)
			if err == nil {
				_, err = Bake(context.Background(), r, a, fleet, epoch)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			if left, _ := filepath.Glob(filepath.Join(r.Upper, "*")); len(left) != 0 {
				t.Errorf("written before it was refused: %v", left)
			}
		})
	}
}

func TestBuiltin(t *testing.T) {
	tests := []struct {
		name  string
		users []spec.User
		want  string // after the site named the account
	}{
		{"keys and sudo of one user", []spec.User{{Name: "ann", Sudo: true, Keys: []string{key}}}, "1"},
		{"password and sudo", []spec.User{{Name: "ann", Sudo: true, Password: yescr}}, "1"},
		{"sudo without a way in", []spec.User{{Name: "ann", Sudo: true, Password: "!"}}, ""},
		{"a way in without sudo", []spec.User{{Name: "ann", Keys: []string{key}}}, ""},
		{"a way in and sudo of two users", []spec.User{{Name: "ann", Keys: []string{key}}, {Name: "ben", Sudo: true}}, ""},
		{"unmanaged keys are not a way in", []spec.User{{Name: "ann", Sudo: true}}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := tree(t)
			bake(t, r, spec.Accounts{Users: test.users, Builtin: "ubuntu"}, nil)
			f := strings.Split(line(t, r, "/etc/shadow", "ubuntu"), ":")
			if f[7] != test.want {
				t.Errorf("ubuntu's expiry is %q, want %q", f[7], test.want)
			}
		})
	}
}

// A site that names no builtin account gets what Divingbell does with ubuntu.
func TestUsualBuiltin(t *testing.T) {
	for _, c := range []struct {
		name  string
		users []spec.User
		want  string
	}{
		{"a password and keys, of two users with sudo", []spec.User{{Name: "ann", Sudo: true, Keys: []string{key}}, {Name: "ben", Sudo: true, Password: yescr}}, "1"},
		{"keys alone leave the console", []spec.User{{Name: "ann", Sudo: true, Keys: []string{key}}}, ""},
		{"a password alone leaves SSH", []spec.User{{Name: "ann", Sudo: true, Password: yescr}}, ""},
		{"nobody", nil, ""},
	} {
		r := tree(t)
		bake(t, r, spec.Accounts{Users: c.users}, nil)
		if f := strings.Split(line(t, r, "/etc/shadow", "ubuntu"), ":"); f[7] != c.want {
			t.Errorf("%s: ubuntu's expiry is %q, want %q", c.name, f[7], c.want)
		}
	}
}

func TestMain(m *testing.M) {
	root.Enter()
	os.Exit(m.Run())
}

// TestNobodyIsAList: accounts of none are the same for the keys of a build's steps, whatever was before.
func TestNobodyIsAList(t *testing.T) {
	if rows, err := Settle(nil, nil); err != nil || rows == nil || len(rows) != 0 {
		t.Errorf("%v, %v", rows, err)
	}
}
