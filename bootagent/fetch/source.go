// SPDX-License-Identifier: Apache-2.0

// Package fetch asks the registry from a process of its own that holds no
// privileges.
//
// A stranger's bytes meet TLS, HTTP, redirects, tokens and manifests first, and
// the agent is root. So each request starts the same program again
// ([Verb]): it reads the credentials, becomes nobody, asks once, and ends. What it
// got goes to its standard output, how it went to its standard error. The agent
// takes both for a registry's word: what comes is capped and hashed again, a
// process that hangs is ended, and what the bytes mean is decided by package trust.
//
// Reports to a fleet's service, and requests for slots, are sent the same way ([Post]).
//
// The loader asks by itself: there is no root yet that a process could be kept
// out of, and whatever it could spoil is verified before it is entered.
package fetch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Verb is the argument with which the program starts itself to ask.
const Verb = "fetch"

// patience is how long a process may take for a manifest. It gives up by itself
// after two minutes; one that does not is ended.
const patience = 150 * time.Second

// Open is [track.Open] with a process for each request. A layout on this machine
// is read by the agent itself: its files may be root's alone.
func Open(b spec.Bootstrap, way track.Way) (oci.Source, error) {
	var list []oci.Source
	for _, place := range append([]string{b.Registry}, b.Mirrors...) {
		at := b
		at.Registry, at.Mirrors = place, nil
		s, err := open(request{Bootstrap: at, Way: way})
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return oci.Places(list...), nil
}

func open(r request) (oci.Source, error) {
	ref, err := oci.ParseRef(r.Bootstrap.Registry)
	if err != nil {
		return nil, err
	}
	if ref.IsLayout() {
		return track.Open(r.Bootstrap, r.Way)
	}
	return &source{ask: r, opened: time.Now()}, nil
}

// source is one registry, asked by processes.
type source struct {
	ask    request
	opened time.Time // when the clock was read
	// program is the program started with Verb; "" is this one.
	program string
}

func (s *source) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := s.ask
	r.Repo, r.Reference, r.ETag = repo, reference, etag
	c, err := s.start(ctx, r)
	if err != nil {
		return oci.Response{}, err
	}
	defer c.Close() // it has ended, unless it said too much
	data, err := io.ReadAll(io.LimitReader(c, oci.MaxManifest+1))
	switch {
	case err != nil:
		return oci.Response{}, err
	case len(data) > oci.MaxManifest:
		return oci.Response{}, refusal.New(refusal.Oversize, "manifest %s has more than %d bytes", reference, oci.MaxManifest)
	case c.said.NotModified && etag != "":
		return oci.Response{ETag: etag, NotModified: true}, nil
	}
	digest := oci.Digest(data)
	if oci.ValidDigest(reference) && digest != reference {
		return oci.Response{}, refusal.New(refusal.Digest, "content of %s is %s", reference, digest)
	}
	return oci.Response{Data: data, MediaType: c.said.MediaType, Digest: digest, ETag: c.said.ETag}, nil
}

// Blob returns once the first byte has come, so that another place can be asked where this one
// does not answer.
func (s *source) Blob(ctx context.Context, repo string, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	return s.blob(ctx, request{Repo: repo, Blob: &d, Offset: offset}, d.Size-offset)
}

// Ranges asks for all spans by one process.
func (s *source) Ranges(ctx context.Context, repo string, d oci.Descriptor, spans []oci.Span) (io.ReadCloser, error) {
	if err := oci.CheckSpans(d, spans); err != nil {
		return nil, err
	}
	n := int64(0)
	for _, s := range spans {
		n += s.To - s.From
	}
	return s.blob(ctx, request{Repo: repo, Blob: &d, Spans: spans}, n)
}

// blob asks for n bytes of a blob.
func (s *source) blob(ctx context.Context, want request, n int64) (io.ReadCloser, error) {
	r := s.ask
	r.Repo, r.Blob, r.Offset, r.Spans = want.Repo, &oci.Descriptor{Digest: want.Blob.Digest, Size: want.Blob.Size}, want.Offset, want.Spans
	c, err := s.start(ctx, r)
	if err != nil {
		return nil, err
	}
	began := bufio.NewReader(c)
	if n > 0 {
		late := time.AfterFunc(patience, c.kill)
		_, err := began.Peek(1)
		if !late.Stop() {
			err = fmt.Errorf("no answer within %v", patience)
		}
		switch {
		case err == io.EOF: // that it is too short is found out by who reads it
			n = 0
		case err != nil:
			return nil, errors.Join(err, c.Close())
		}
	}
	return limited{io.LimitReader(began, max(0, n)), c}, nil
}

type limited struct {
	io.Reader
	io.Closer
}

// child is a process that was asked. Reading gives what it brings; its outcome is
// known, and an error of it returned, where that ends.
type child struct {
	ctx  context.Context // ends the process
	kill context.CancelFunc
	cmd  *exec.Cmd
	out  io.ReadCloser
	err  first // what it says at its end
	over bool
	said outcome
}

// start starts a process and asks it. The process ends with ctx, or with Close.
func (s *source) start(ctx context.Context, r request) (*child, error) {
	r.Clock.RTC = r.Clock.RTC.Add(time.Since(s.opened))
	asked, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	c := &child{}
	c.ctx, c.kill = context.WithCancel(ctx)
	c.cmd = exec.CommandContext(c.ctx, cmp.Or(s.program, "/proc/self/exe"), Verb)
	c.cmd.Args[0] = os.Args[0]
	c.cmd.Stdin, c.cmd.Stderr = bytes.NewReader(asked), &c.err
	c.cmd.Dir, c.cmd.Env = "/", environment()
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with all that it may have started
	c.cmd.Cancel = func() error { return syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }
	c.cmd.WaitDelay = time.Second
	if c.out, err = c.cmd.StdoutPipe(); err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		c.kill()
		return nil, fmt.Errorf("start a process to ask the registry: %w", err)
	}
	return c, nil
}

// grace is how long a process may take to end when it has brought all.
const grace = 5 * time.Second

func (c *child) Read(p []byte) (int, error) {
	n, err := c.out.Read(p)
	if err != nil {
		if ended := c.end(); ended != nil {
			err = ended
		}
	}
	return n, err
}

// Close ends a process of which nothing more is wanted.
func (c *child) Close() error {
	c.kill()
	_ = c.end() // its result is not used
	return nil
}

// end waits for the process and returns the error that it met.
func (c *child) end() error {
	if c.over {
		return nil
	}
	c.over = true
	defer c.kill()
	defer time.AfterFunc(grace, c.kill).Stop()
	err := c.cmd.Wait()
	if stopped := c.ctx.Err(); stopped != nil {
		return stopped
	}
	if err != nil {
		return fmt.Errorf("the process that asks the registry: %w: %s", err, strings.TrimSpace(string(c.err)))
	}
	if c.said, err = parseOutcome(c.err); err != nil {
		return err
	}
	return c.said.err()
}

// first holds the first part of what is written to it.
type first []byte

func (f *first) Write(p []byte) (int, error) {
	*f = append(*f, p[:min(len(p), maxOutcome-len(*f))]...)
	return len(p), nil
}

// environment returns the variables that a request depends on: proxies and authorities.
func environment() []string {
	env := []string{} // not nil, which is all
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// nobody is the user and group that owns nothing.
const nobody = 65534

// confine gives up what asking a registry does not take: capabilities, the right
// to gain any, files to write, and the agent's place at the end of the kernel's
// list of what it kills when memory is short.
func confine() error {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0o600) // without /proc there is nothing to compare with
	for resource, limit := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: 64} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("limit the process that asks the registry: %w", err)
		}
	}
	if os.Geteuid() == 0 { // a change of user takes the capabilities of all threads
		for _, err := range []error{syscall.Setgroups([]int{}), syscall.Setresgid(nobody, nobody, nobody),
			syscall.Setresuid(nobody, nobody, nobody)} {
			if err != nil {
				return fmt.Errorf("give up privileges: %w", err)
			}
		}
	}
	// cgo, as in tests for races
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 &&
		!errors.Is(errno, unix.ENOTSUP) {
		return fmt.Errorf("give up privileges: %w", errno)
	}
	return nil
}

// request holds the input of a process: one place and one question.
type request struct {
	Bootstrap spec.Bootstrap
	track.Way

	Repo      string
	Reference string // of a manifest
	ETag      string
	Blob      *oci.Descriptor // a blob instead
	Offset    int64
	Spans     []oci.Span // parts of the blob instead of all from the offset on

	Post *post.Letter // to send instead
}

// maxOutcome is the cap of an outcome, in bytes.
const maxOutcome = 16 << 10

// outcome holds the last message of a process, when all that it brings is written.
type outcome struct {
	MediaType   string
	ETag        string
	NotModified bool

	Error   string       // "" when it went well
	Refusal refusal.Code // of the error, "" for a failure
	Kind    string       // of a failure, a key of kinds
}

// kinds are the failures that callers tell apart.
var kinds = map[string]error{
	"not found": oci.ErrNotFound, "slow": pull.ErrSlow, "cut": io.ErrUnexpectedEOF, "permission": fs.ErrPermission,
	"not taken": post.ErrRefused, "answered": oci.ErrAnswered, "reset": unix.ECONNRESET, "eof": io.EOF,
}

func parseOutcome(said []byte) (o outcome, err error) {
	if err = json.Unmarshal(said, &o); err != nil {
		err = fmt.Errorf("the process that asks the registry says %.200q: %w", said, err)
	}
	return o, err
}

func outcomeOf(err error) outcome {
	o := outcome{Error: err.Error(), Refusal: refusal.Of(err)}
	o.Error = o.Error[:min(len(o.Error), maxOutcome/8)] // a byte may take six in JSON
	for kind, is := range kinds {
		if errors.Is(err, is) {
			o.Kind = kind
		}
	}
	return o
}

// err returns an error of the kind that the process met.
func (o outcome) err() error {
	switch {
	case o.Error == "":
		return nil
	case slices.Contains(refusal.Codes(), o.Refusal):
		return refusal.New(o.Refusal, "%s", o.Error)
	}
	return told{o.Error, kinds[o.Kind]}
}

// told is an error in another process's words.
type told struct {
	text string
	kind error // nil for one that nobody tells apart
}

func (t told) Error() string { return t.text }
func (t told) Unwrap() error { return t.kind }

// Serve is the process: it reads a request, answers on out, and says on said how
// it went. The error is that of saying so.
func Serve(ctx context.Context, in io.Reader, out, said io.Writer) error {
	o, err := serve(ctx, in, out)
	if err != nil {
		o = outcomeOf(err)
	}
	return json.NewEncoder(said).Encode(o)
}

func serve(ctx context.Context, in io.Reader, out io.Writer) (outcome, error) {
	var r request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return outcome{}, fmt.Errorf("read a request: %w", err)
	}
	if r.Post != nil {
		deliver, err := prepare(ctx, r, out) // reads what only root may
		if err == nil {
			err = confine()
		}
		if err == nil {
			err = deliver()
		}
		return outcome{}, err
	}
	src, err := track.Open(r.Bootstrap, r.Way) // reads what only root may
	if err != nil {
		return outcome{}, err
	}
	if err := confine(); err != nil {
		return outcome{}, err
	}
	if r.Blob != nil {
		body, err := r.open(ctx, src)
		if err != nil {
			return outcome{}, err
		}
		defer body.Close() // it was only read
		_, err = io.Copy(out, body)
		return outcome{}, err
	}
	resp, err := src.Manifest(ctx, r.Repo, r.Reference, r.ETag)
	if err != nil {
		return outcome{}, err
	}
	if !resp.NotModified {
		// What a manifest can do to a parser it does here first.
		if _, err := oci.ParseManifest(resp.Data); err != nil {
			return outcome{}, fmt.Errorf("%s:%s: %w", r.Repo, r.Reference, err)
		}
	}
	_, err = out.Write(resp.Data)
	return outcome{MediaType: resp.MediaType, ETag: resp.ETag, NotModified: resp.NotModified}, err
}

// open opens the blob, or parts of it.
func (r request) open(ctx context.Context, src oci.Source) (io.ReadCloser, error) {
	if r.Spans == nil {
		return src.Blob(ctx, r.Repo, *r.Blob, r.Offset)
	}
	ranger, ok := src.(oci.Ranger)
	if !ok {
		return nil, refusal.New(refusal.Range, "%s: this place serves no parts", r.Blob.Digest)
	}
	return ranger.Ranges(ctx, r.Repo, *r.Blob, r.Spans)
}
