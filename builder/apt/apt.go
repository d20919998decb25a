// SPDX-License-Identifier: Apache-2.0

// Package apt asks apt(8) which packages a layer needs and fetches them.
//
// It keeps a private apt configuration and state ([State]): no part of the
// host's package database is read or written, only its Acquire settings
// (proxies) are taken over. Resolving and installing are apart on purpose:
// [State.Resolve] names exact files by sha256, [Store.Fetch] gets them, [Repo]
// offers exactly those to mmdebstrap(1) and to apt in the layer. What is not in
// the list cannot be installed, whatever a mirror says meanwhile.
//
// Only builder, its steps (builder/base, builder/packages), fleet/preview and builder/release, which
// names the places of its errors in the site, import it.
package apt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/cli"
)

// Archive is one place that packages come from, see sources.list(5).
type Archive struct {
	ID         string
	URI        string
	Suites     []string
	Components []string
	Keyring    string // file that apt trusts for it
	Trusted    bool   // no signature: content is pinned by other means
	Flat       bool   // the suite is an exact path and there are no components
	Dated      bool   // a snapshot: its Release may have expired
}

// lines is the archive in sources.list form.
func (a Archive) lines() string {
	var options []string
	if a.Keyring != "" {
		options = append(options, "signed-by="+a.Keyring)
	}
	if a.Trusted {
		options = append(options, "trusted=yes")
	}
	if a.Dated {
		options = append(options, "check-valid-until=no")
	}
	var b strings.Builder
	for _, suite := range a.Suites {
		fmt.Fprintf(&b, "deb [%s] %s %s %s\n", strings.Join(options, " "), a.URI, suite, strings.Join(a.Components, " "))
	}
	return b.String()
}

// copied is the URI by which apt copies what lies on this machine: from file:///srv it would
// make links to the archive's own files, and it writes that in another way than it was given.
func copied(uri string) string {
	if path, local := strings.CutPrefix(uri, "file:"); local {
		return "copy:/" + strings.TrimLeft(path, "/")
	}
	return uri
}

// State is a private apt: configuration, lists, caches.
type State struct {
	dir      string
	arch     string
	archives []Archive
}

// Open prepares the state in dir for the archives.
func Open(ctx context.Context, dir, arch string, archives []Archive) (*State, error) {
	for _, tool := range []string{"apt-get", "apt-cache", "apt-config", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, MissingTool(tool, "apt and dpkg")
		}
	}
	archives = slices.Clone(archives)
	for i := range archives {
		archives[i].URI = copied(archives[i].URI)
	}
	s := &State{dir: dir, arch: arch, archives: archives}
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d", "etc/sources.list.d"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	var sources strings.Builder
	for _, a := range archives {
		sources.WriteString(a.lines())
	}
	// apt reads all indexes again, for more than half a second, when this file is newer
	// than what it made of them.
	if was, err := os.ReadFile(s.path("etc/sources.list")); err != nil || string(was) != sources.String() {
		if err := os.WriteFile(s.path("etc/sources.list"), []byte(sources.String()), 0o644); err != nil {
			return nil, err
		}
	}
	conf := fmt.Sprintf(`Dir::State %[1]q;
Dir::State::lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::State::extended_states "%[1]s/extended_states";
Dir::Cache "%[1]s/cache";
Dir::Etc "%[1]s/etc";
Dir::Etc::trusted "none";
Dir::Etc::trustedparts "none";
Dir::Etc::netrc "/etc/apt/auth.conf";
Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
APT::Architecture %[2]q;
APT::Architectures { %[2]q; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
APT::Get::Assume-Yes "true";
Acquire::Languages "none";
Acquire::GzipIndexes "false";
Acquire::ForceHash "SHA256";
Acquire::Retries "2";
`, dir, arch)
	conf += hostAcquire(ctx)
	return s, os.WriteFile(s.path("apt.conf"), []byte(conf), 0o644)
}

func (s *State) path(name string) string { return filepath.Join(s.dir, name) }

// hostAcquire is the host's own way to the network: proxies and time-outs. Credentials of
// archives are the host's, too: they never enter a layer.
func hostAcquire(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return ""
	}
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		for _, prefix := range []string{"Acquire::http::", "Acquire::https::", "Acquire::ftp::"} {
			if strings.HasPrefix(line, prefix) {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// proxies are the variables that apt reads where its configuration has no proxy.
var proxies = []string{"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"}

func (s *State) run(ctx context.Context, args ...string) (string, error) {
	return s.feed(ctx, "", args...)
}

// feed runs a program of apt that reads text.
func (s *State) feed(ctx context.Context, text string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = []string{"APT_CONFIG=" + s.path("apt.conf"), "LC_ALL=C.UTF-8", "TZ=UTC", "DEBIAN_FRONTEND=noninteractive",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, name := range proxies {
		if value, is := os.LookupEnv(name); is {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Dir, cmd.Stdin = s.dir, strings.NewReader(text)
	runtime.LockOSThread() // the death signal is sent when the parent thread ends
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var all strings.Builder
	cmd.Stderr = &all
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", &Error{Args: args, Reasons: Reasons(string(out) + "\n" + all.String()), Err: err}
	}
	return string(out), nil
}

// MissingTool returns the error for a program of the host that is not there.
func MissingTool(name, pkg string) error {
	return cli.WithHint(errors.New("program "+name+" is not installed"), "install "+pkg)
}

// Error is apt's refusal: its reasons, not its log.
type Error struct {
	Args    []string
	Reasons []string
	Err     error
}

func (e *Error) Error() string {
	if len(e.Reasons) == 0 {
		return fmt.Sprintf("%s: %v", filepath.Base(e.Args[0]), e.Err)
	}
	return strings.Join(e.Reasons, "; ")
}
func (e *Error) Unwrap() error { return e.Err }

// ReasonsOf turns a failed run in a root into apt's reasons.
func ReasonsOf(err error) error {
	if exit, ok := errors.AsType[*root.ExitError](err); ok {
		return &Error{Args: exit.Args, Reasons: Reasons(exit.Output), Err: exit.Err}
	}
	return err
}

// begins matches the lines with which dpkg takes up a package, after which its
// scripts talk.
var begins = regexp.MustCompile(`^(Setting up|Unpacking|Preparing to unpack|Selecting previously|` +
	`Removing|Purging configuration|Processing triggers for) `)

// saidLines is how much of a failed script's talk an error has.
const saidLines = 4

// Reasons picks from apt's and dpkg's talk the lines that say why.
func Reasons(output string) []string {
	var reasons []string
	seen := map[string]bool{}
	unmet := false
	var script []string // what was said since dpkg began with a package
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		text := strings.TrimSpace(line)
		if begins.MatchString(line) {
			script = nil
		} else if text != "" && !strings.HasPrefix(text, "dpkg: ") {
			script = append(script, text)
		}
		switch {
		case strings.HasPrefix(line, "The following packages have unmet dependencies"):
			unmet = true
			continue
		case unmet && strings.HasPrefix(line, " "):
		case strings.HasPrefix(text, "E: Unable to correct problems"), strings.HasPrefix(text, "E: Sub-process"):
			unmet = false
			continue
		case strings.HasPrefix(text, "E: "):
			unmet = false
			text = strings.TrimPrefix(text, "E: ")
		case strings.Contains(text, "No space left on device"):
			unmet = false
		case strings.HasPrefix(text, "dpkg: error processing") && len(script) > 0:
			unmet = true
			last := script[max(0, len(script)-saidLines):]
			text, script = fmt.Sprintf("%s it said %.300q", text, strings.Join(last, "; ")), nil
		case strings.HasPrefix(text, "dpkg: error"), strings.HasPrefix(text, "dpkg: dependency problems"):
			unmet = true // the reason follows, indented
		default:
			unmet = false
			continue
		}
		text = strings.Join(strings.Fields(text), " ")
		if text != "" && !seen[text] && len(reasons) < 12 {
			seen[text] = true
			reasons = append(reasons, text)
		}
	}
	return reasons
}
