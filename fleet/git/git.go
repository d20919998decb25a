// SPDX-License-Identifier: Apache-2.0

// Package git reads repositories of git for a publisher: which commit a branch means,
// what it changed, who signed it, and the files of some of its directories.
//
// The git(1) of the host does the work, since it is the one that servers are tested
// with. It is held short: no prompt, no hook, no configuration but ours, a few
// protocols, a deadline, and a bound on what is kept of a repository. What it is
// asked for and what it answers are names of objects; files are read from its
// objects, never from a checkout, so nothing in a repository can act: no filter, no
// attribute, no submodule. Nodes link none of this. fleet/content imports it.
package git

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec/rules"
)

// Limits bound what a repository may cost. The zero value is [Usual].
type Limits struct {
	Time   time.Duration // of one run of git
	Memory int64         // of one process of git
	Bytes  int64         // that are kept of one repository
	Files  int           // in the directories of one service
	Size   int64         // of those files together
}

// Usual are the limits of a publisher.
var Usual = Limits{Time: 10 * time.Minute, Memory: 4 << 30, Bytes: 4 << 30, Files: 100_000, Size: 1 << 30}

// Repository is a copy of a remote one, without files, in a directory of its own.
type Repository struct {
	URL    string
	Limits Limits

	dir  string
	lock *os.File
}

// Open returns the copy of a repository below a cache directory, and makes an empty
// one where there is none. Others that open it wait. It asks nobody.
func Open(ctx context.Context, cache, url string, l Limits) (_ *Repository, err error) {
	if err := rules.GitURL(url); err != nil {
		return nil, err
	}
	if l == (Limits{}) {
		l = Usual
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return nil, err
	}
	r := &Repository{URL: url, Limits: l, dir: filepath.Join(cache, "git", fmt.Sprintf("%x", sha256.Sum256([]byte(url)))[:32])}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	if r.lock, err = os.OpenFile(r.dir+".lock", os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = r.Close() // err says what failed
		}
	}()
	if err := stall.Lock(ctx, r.lock, false); err != nil {
		return nil, fmt.Errorf("lock %s: %w", r.lock.Name(), err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "HEAD")); errors.Is(err, fs.ErrNotExist) {
		if _, err := r.run(ctx, "init", "--quiet", "--bare", "--template="); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Close lets others open it.
func (r *Repository) Close() error { return r.lock.Close() }

// settings hold git to what is asked of it, whatever a repository or its server says.
func settings() []string {
	out := []string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.askPass=", "-c",
		"credential.helper=", "-c", "gc.auto=0", "-c", "core.bigFileThreshold=16m", "-c", "pack.threads=1", "-c", "maintenance.auto=false",
		"-c", "fetch.recurseSubmodules=false", "-c", "submodule.recurse=false", "-c", "protocol.version=2", "-c", "http.followRedirects=initial",
		"-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60", "-c", "core.quotePath=false", "-c",
		"log.showSignature=false", "-c", "protocol.allow=never"}
	for _, p := range rules.GitProtocols {
		out = append(out, "-c", "protocol."+p+".allow=always")
	}
	return out
}

// environment has what git needs to reach a server as this user, and nothing that
// would have it ask, or run what the user configured.
func environment() []string {
	out := []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=/bin/false", "SSH_ASKPASS=/bin/false",
		"GIT_SSH_COMMAND=ssh -oBatchMode=yes -oConnectTimeout=20", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0",
		"GIT_ALLOW_PROTOCOL=" + strings.Join(rules.GitProtocols, ":"), "LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "http_proxy", "https_proxy",
		"HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"} {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// maxAnswer bounds what git prints, of which a list of files is the longest.
const maxAnswer = 128 << 20

// run runs git in the repository and returns what it printed.
func (r *Repository) run(ctx context.Context, args ...string) ([]byte, error) {
	var out capped
	err := r.stream(ctx, nil, &out, args...)
	return out.text, err
}

// stream runs git and lets it print to w. It dies with this process, with all that it
// started when it takes too long, and when it has brought too much.
func (r *Repository) stream(ctx context.Context, in io.Reader, w io.Writer, args ...string) error {
	ctx, end := context.WithTimeoutCause(ctx, r.Limits.Time, fmt.Errorf("it took more than %v", r.Limits.Time))
	defer end()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cmd := exec.CommandContext(ctx, "git", slices.Concat([]string{"--git-dir=" + r.dir}, settings(), args)...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout = environment(), r.dir, in, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	said := &tail{}
	cmd.Stderr = said
	if args[0] == "fetch" {
		go r.watch(ctx, stop)
	}
	err := cmd.Start()
	if err == nil {
		err = errors.Join(r.hold(cmd), cmd.Wait())
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return cli.WithHint(errors.New("program git is not installed"), "install git")
	case context.Cause(ctx) != nil:
		return fmt.Errorf("git %s: %w", args[0], context.Cause(ctx))
	}
	return &Error{Verb: args[0], Said: said.String(), Err: err}
}

// hold bounds the memory of git and of what it starts: a few bytes on their way can be
// objects of gigabytes, each of which it unpacks whole.
func (r *Repository) hold(cmd *exec.Cmd) error {
	limit := &unix.Rlimit{Cur: uint64(r.Limits.Memory), Max: uint64(r.Limits.Memory)}
	err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_DATA, limit, nil)
	if err == nil || errors.Is(err, unix.ESRCH) { // it has ended already
		return nil
	}
	return errors.Join(fmt.Errorf("bound the memory of git: %w", err), cmd.Cancel())
}

// watch ends a fetch that brings more than is to be kept.
func (r *Repository) watch(ctx context.Context, stop context.CancelCauseFunc) {
	for stall.Rest(ctx, 100*time.Millisecond) == nil {
		if r.size() > r.Limits.Bytes {
			stop(r.tooLarge())
			return
		}
	}
}

func (r *Repository) tooLarge() error {
	return fmt.Errorf("the repository has more than %d MB", r.Limits.Bytes/1e6)
}

// size is how much is kept of the repository.
func (r *Repository) size() (n int64) {
	_ = filepath.WalkDir(r.dir, func(_ string, d fs.DirEntry, err error) error { // files come and go while git works
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// Error holds what git said when it failed.
type Error struct {
	Verb string
	Said string // its last words
	Err  error
}

func (e *Error) Error() string {
	if e.Said == "" {
		return fmt.Sprintf("git %s: %v", e.Verb, e.Err)
	}
	return fmt.Sprintf("git %s: %s", e.Verb, e.Said)
}

func (e *Error) Unwrap() error { return e.Err }

// tail keeps the end of what is written to it.
type tail struct{ data []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if n := len(t.data) - 4096; n > 0 {
		t.data = t.data[n:]
	}
	return len(p), nil
}

// String is the last lines that say something, as one.
func (t *tail) String() string {
	var out []string
	for line := range strings.Lines(string(t.data)) {
		line = strings.TrimSpace(line[strings.LastIndexByte(strings.TrimRight(line, "\r\n"), '\r')+1:])
		if line != "" && !strings.HasPrefix(line, "hint:") {
			out = append(out, strings.TrimPrefix(strings.TrimPrefix(line, "fatal: "), "error: "))
		}
	}
	return strings.Join(out[max(0, len(out)-3):], "; ")
}

// capped refuses to grow beyond [maxAnswer]. It is not a bytes.Buffer, whose ReadFrom would
// go round Write.
type capped struct{ text []byte }

func (c *capped) Write(p []byte) (int, error) {
	if len(c.text)+len(p) > maxAnswer {
		return 0, fmt.Errorf("git prints more than %d MB", maxAnswer>>20)
	}
	c.text = append(c.text, p...)
	return len(p), nil
}

// headTime bounds two questions about a working tree: nobody waits for a note longer.
const headTime = 10 * time.Second

// Head returns the commit that the working tree around dir has checked out, with a "+" behind it
// where tracked files below dir differ from it; "" where dir is in no repository.
func Head(ctx context.Context, dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil || !inRepository(dir) {
		return "", err
	}
	ctx, end := context.WithTimeout(ctx, headTime)
	defer end()
	id, err := ask(ctx, dir, "rev-parse", "--verify", "HEAD^{commit}")
	if err != nil {
		return "", err
	}
	if err := rules.GitCommit(id); err != nil {
		return "", err
	}
	differs, err := ask(ctx, dir, "status", "--porcelain", "--untracked-files=no", "--", ".")
	if differs != "" {
		id += "+"
	}
	return id, err
}

// ask asks the working tree around dir.
func ask(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", slices.Concat([]string{"-C", dir}, settings(), args)...)
	cmd.Env, cmd.WaitDelay = environment(), time.Second
	said := &tail{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, said)
	}
	return strings.TrimSpace(string(out)), nil
}

// Export writes a commit of the repository around dir into an empty directory, and returns where
// dir is in that, by the rules of [Repository.Files].
func Export(ctx context.Context, dir, id, to string) (string, error) {
	if err := rules.GitCommit(id); err != nil {
		return "", err
	}
	within, err := ask(ctx, dir, "rev-parse", "--show-prefix")
	if err != nil {
		return "", err
	}
	r := &Repository{Limits: Usual}
	if r.dir, err = ask(ctx, dir, "rev-parse", "--absolute-git-dir"); err != nil {
		return "", err
	}
	none := func(string) bool { return false } // all of it is one directory
	return filepath.Join(to, within), r.Files(ctx, Commit{ID: id, Date: time.Unix(0, 0)}, []string{"."}, none, to)
}

func inRepository(dir string) bool {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		if filepath.Dir(dir) == dir {
			return false
		}
		dir = filepath.Dir(dir)
	}
}
