// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/rules"
)

// ErrGone is returned for a branch, a tag or a commit that the server does not have.
var ErrGone = errors.New("the repository does not have it")

// Commit is one commit, as people are shown it.
type Commit struct {
	ID      string    `json:"commit"`
	Author  string    `json:"author"`
	Date    time.Time `json:"date"` // of the committer
	Subject string    `json:"subject"`
}

// Follow fetches a branch or a tag ("heads/main", "tags/v1") and returns its commit.
// A history that was rewritten takes the place of the one before; commits that were
// fetched once stay.
func (r *Repository) Follow(ctx context.Context, ref string) (string, error) {
	if err := rules.GitRef(ref); err != nil {
		return "", err
	}
	own := "refs/caisson/" + ref
	err := r.fetch(ctx, "+refs/"+ref+":"+own)
	if err != nil {
		return "", err
	}
	id, err := r.commit(ctx, own)
	if err != nil {
		return "", err
	}
	return id, r.keep(ctx, id)
}

// Have fetches one commit, unless it is here already.
func (r *Repository) Have(ctx context.Context, id string) error {
	if err := rules.GitCommit(id); err != nil {
		return err
	}
	if got, err := r.commit(ctx, id); err == nil && got == id {
		return nil
	}
	if err := r.fetch(ctx, id); err != nil {
		return err
	}
	got, err := r.commit(ctx, id)
	if err == nil && got != id {
		err = fmt.Errorf("%s is not a commit", id)
	}
	if err != nil {
		return err
	}
	return r.keep(ctx, id)
}

// Find returns the commit that an abbreviated name of at least seven digits leads to,
// of those that are here; a full name is fetched.
func (r *Repository) Find(ctx context.Context, name string) (string, error) {
	if rules.GitCommit(name) == nil {
		return name, r.Have(ctx, name)
	}
	if len(name) < 7 || strings.Trim(name, "0123456789abcdef") != "" {
		return "", rules.GitCommit(name)
	}
	id, err := r.commit(ctx, name)
	if err != nil {
		return "", fmt.Errorf("commit %s: %w, or several begin so", name, ErrGone)
	}
	return id, nil
}

// keep names a commit, so that nothing removes it when its branch is rewritten.
func (r *Repository) keep(ctx context.Context, id string) error {
	_, err := r.run(ctx, "update-ref", "refs/caisson/commits/"+id, id)
	return err
}

func (r *Repository) fetch(ctx context.Context, what string) error {
	_, err := r.run(ctx, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--", r.URL, what)
	var failed *Error
	if errors.As(err, &failed) && (strings.Contains(failed.Said, "couldn't find remote ref") || strings.Contains(failed.Said, "not our ref")) {
		return fmt.Errorf("%s: %w: %s", r.URL, ErrGone, failed.Said)
	}
	if err != nil {
		return cli.WithHint(fmt.Errorf("%s: %w", r.URL, err), "git reads ~/.netrc and the keys of ssh, and asks nothing")
	}
	if r.size() > r.Limits.Bytes {
		return r.tooLarge()
	}
	return nil
}

// commit returns the commit that a name leads to.
func (r *Repository) commit(ctx context.Context, name string) (string, error) {
	out, err := r.run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	id := strings.TrimSpace(string(out))
	if err == nil {
		err = rules.GitCommit(id)
	}
	return id, err
}

// Last returns the last commit, of those that lead to one, that changed what is at
// some paths: as long as it is the same, so are the files.
func (r *Repository) Last(ctx context.Context, id string, paths []string) (Commit, error) {
	list, err := r.log(ctx, 1, paths, id)
	return first(list, err, "no commit before %s has %s", id, strings.Join(paths, ", "))
}

// Show returns one commit.
func (r *Repository) Show(ctx context.Context, id string) (Commit, error) {
	list, err := r.log(ctx, 1, nil, id)
	return first(list, err, "git log: nothing of %s", id)
}

// first returns the first commit of a list, or an error that says of what there is none.
func first(list []Commit, err error, none string, args ...any) (Commit, error) {
	if err == nil && len(list) == 0 {
		err = fmt.Errorf(none, args...)
	}
	if err != nil {
		return Commit{}, err
	}
	return list[0], nil
}

// Leads reports whether one commit leads to another, or is it. Both are here.
func (r *Repository) Leads(ctx context.Context, from, to string) (bool, error) {
	_, err := r.run(ctx, "merge-base", "--is-ancestor", from, to)
	var failed *Error
	var exit *exec.ExitError
	if errors.As(err, &failed) && errors.As(failed.Err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// Before returns the last commit before one that changed what is at some paths.
func (r *Repository) Before(ctx context.Context, id string, paths []string) (Commit, error) {
	list, err := r.log(ctx, 2, paths, id)
	if len(list) > 0 && list[0].ID == id {
		list = list[1:]
	}
	return first(list, err, "commit %s is the first with %s", id, strings.Join(paths, ", "))
}

// Between lists commits that lead to one and not to another and that changed what is
// at some paths, the newest first. Of a rewritten history these are all since it was.
func (r *Repository) Between(ctx context.Context, from, to string, paths []string) ([]Commit, error) {
	return r.log(ctx, maxCommits, paths, to, "^"+from)
}

// maxCommits is how many commits people are shown.
const maxCommits = 50

func (r *Repository) log(ctx context.Context, n int, paths []string, names ...string) ([]Commit, error) {
	args := append([]string{"--literal-pathspecs", "log", "-n", strconv.Itoa(n), "-z", "--format=%H%x01%ct%x01%an%x01%s",
		"--end-of-options"}, names...)
	out, err := r.run(ctx, append(append(args, "--"), paths...)...)
	if err != nil {
		return nil, err
	}
	var list []Commit
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if line == "" {
			continue
		}
		part := strings.SplitN(line, "\x01", 4)
		if len(part) != 4 || rules.GitCommit(part[0]) != nil {
			return nil, fmt.Errorf("git log: %.80q is not a commit", line)
		}
		at, err := strconv.ParseInt(part[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("git log: %w", err)
		}
		list = append(list, Commit{part[0], part[2], time.Unix(at, 0).UTC(), part[3]})
	}
	return list, nil
}

// Changed lists the paths in which two commits differ, of those at or below some.
func (r *Repository) Changed(ctx context.Context, from, to string, paths []string) ([]string, error) {
	out, err := r.run(ctx, append([]string{"--literal-pathspecs", "diff-tree", "-r", "-z", "--no-renames", "--name-only",
		"--end-of-options", from, to, "--"}, paths...)...)
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 }), nil
}

// Signed demands a good signature of a commit, made with ssh by a key of a file as
// ssh-keygen(1) describes it in ALLOWED SIGNERS. Without one it fails.
func (r *Repository) Signed(ctx context.Context, id, signers string) error {
	_, err := r.run(ctx, "-c", "gpg.format=ssh", "-c", "gpg.minTrustLevel=fully", "-c", "gpg.program=/bin/false", "-c",
		"gpg.x509.program=/bin/false",
		"-c", "gpg.ssh.program=ssh-keygen", "-c", "gpg.ssh.allowedSignersFile="+signers, "verify-commit", id)
	if failed, ok := errors.AsType[*Error](err); ok {
		return cli.WithHint(fmt.Errorf("commit %s is not signed by one of %s: %s", id, signers, failed.Said),
			"git commit -S with gpg.format=ssh signs; the server does not")
	}
	return err
}
