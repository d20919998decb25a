// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
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
		return cli.WithHint(fmt.Errorf("%s: %w", r.URL, err), cmp.Or(cli.HintOf(err), "git reads ~/.netrc and the keys of ssh, and asks nothing"))
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
	if exit, ended := errors.AsType[*exec.ExitError](err); ended && exit.ExitCode() == 1 {
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

// file is one entry of a commit.
type file struct {
	mode string // 100644, 100755 or 120000
	id   string
	size int64
	path string
}

const (
	executable = "100755"
	link       = "120000"
	submodule  = "160000"
)

// Files writes what a commit has at some paths into an empty directory, below the same
// paths, with its date. It refuses what would not be the same, or not safe, on a node:
// submodules, links that lead out of their path, pointers of Git LFS. File says of a
// path whether it has to be a single file; else it has to be a directory.
func (r *Repository) Files(ctx context.Context, c Commit, paths []string, single func(string) bool, dir string) error {
	files, err := r.list(ctx, c.ID, paths, single)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // what was written is closed
	if err := r.write(ctx, root, files, paths, single); err != nil {
		return err
	}
	return dateAll(dir, c.Date)
}

// list returns the files at the paths, checked.
func (r *Repository) list(ctx context.Context, id string, paths []string, single func(string) bool) ([]file, error) {
	out, err := r.run(ctx, append([]string{"--literal-pathspecs", "ls-tree", "-r", "-z", "-l", "--full-tree", id, "--"}, paths...)...)
	if err != nil {
		return nil, err
	}
	var files []file
	var size int64
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		head, name, ok := strings.Cut(line, "\t")
		word := strings.Fields(head)
		if !ok || len(word) != 4 {
			if line == "" {
				continue
			}
			return nil, fmt.Errorf("git ls-tree: %.80q is not an entry", line)
		}
		f := file{mode: word[0], id: word[2], path: name}
		if f.mode == submodule {
			return nil, cli.WithHint(fmt.Errorf("%s is a submodule: another repository decides what is in it", name),
				"have its files in this repository, or make it a service of its own")
		}
		if f.size, err = strconv.ParseInt(word[3], 10, 64); err != nil {
			return nil, fmt.Errorf("git ls-tree: size of %s: %w", name, err)
		}
		if size += f.size; size > r.Limits.Size {
			return nil, fmt.Errorf("the files have more than %d MB", r.Limits.Size/1e6)
		}
		files = append(files, f)
	}
	if len(files) > r.Limits.Files {
		return nil, fmt.Errorf("%d files are more than %d", len(files), r.Limits.Files)
	}
	for _, p := range paths {
		if err := r.there(ctx, id, p, single(p), files); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// there wants a path to be what it is taken for.
func (r *Repository) there(ctx context.Context, id, p string, single bool, files []file) error {
	isFile := slices.ContainsFunc(files, func(f file) bool { return f.path == p })
	isDir := slices.ContainsFunc(files, func(f file) bool { return p == "." || strings.HasPrefix(f.path, p+"/") })
	switch {
	case isFile && !single:
		return cli.WithHint(fmt.Errorf("%s is a file", p), "write file: true")
	case isDir && single:
		return cli.WithHint(fmt.Errorf("%s is a directory", p), "leave out file: true")
	case isFile || isDir:
		return nil
	}
	hint := ""
	if out, err := r.run(ctx, "ls-tree", "-r", "-t", "-z", "--name-only", "--full-tree", id); err == nil {
		hint = plain.DidYouMean(p, strings.SplitSeq(string(out), "\x00"))
	}
	return cli.WithHint(fmt.Errorf("commit %s has no %s", id, p), hint)
}

// write writes the files, whose content one git(1) gives in their order.
func (r *Repository) write(ctx context.Context, root *os.Root, files []file, paths []string, single func(string) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ids strings.Builder
	for _, f := range files {
		ids.WriteString(f.id + "\n")
	}
	from, to := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := r.stream(ctx, strings.NewReader(ids.String()), to, "cat-file", "--batch")
		ended <- err
		_ = to.CloseWithError(errors.Join(err, io.ErrUnexpectedEOF)) // it always works
	}()
	err := func() error {
		in := bufio.NewReader(from)
		for _, f := range files {
			if err := writeFile(root, f, in, within(f.path, paths, single)); err != nil {
				return fmt.Errorf("%s: %w", f.path, err)
			}
		}
		return nil
	}()
	_ = from.Close() // it always works
	if err != nil {
		cancel()
		<-ended // err says what failed
		return err
	}
	return <-ended
}

// within returns the directory that a link at name must not leave; "" where there can
// be none.
func within(name string, paths []string, single func(string) bool) string {
	for _, p := range paths {
		if !single(p) && (p == "." || strings.HasPrefix(name, p+"/")) {
			return p
		}
	}
	return ""
}

const maxLink = 4096

func writeFile(root *os.Root, f file, in *bufio.Reader, within string) error {
	head, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%s blob %d\n", f.id, f.size); head != want {
		return fmt.Errorf("git cat-file says %.80q", head)
	}
	if !filepath.IsLocal(f.path) {
		return errors.New("the path leads out of the repository")
	}
	if err := mkdirs(root, path.Dir(f.path)); err != nil {
		return err
	}
	content := io.LimitReader(in, f.size)
	if f.mode == link {
		err = writeLink(root, f, content, within)
	} else {
		err = writeContent(root, f, content)
	}
	if err != nil {
		return err
	}
	_, err = in.Discard(1)
	return err
}

// mkdirs makes the directories above a file, each with the mode that it has on nodes.
func mkdirs(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if info, err := root.Lstat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := mkdirs(root, path.Dir(dir)); err != nil {
		return err
	}
	if err := root.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return root.Chmod(dir, 0o755)
}

func writeLink(root *os.Root, f file, content io.Reader, within string) error {
	if f.size > maxLink {
		return errors.New("the link is too long")
	}
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if !stays(f.path, string(data), within) {
		return cli.WithHint(fmt.Errorf("the link leads to %.150q, out of %s", data, within), "a node gets no other part of the repository")
	}
	return root.Symlink(string(data), f.path)
}

// stays reports whether a link stays in a directory. After another name, .. may be that
// of another link's directory: such a link is taken for one that leaves.
func stays(name, target, dir string) bool {
	if dir == "" || target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return false
	}
	down := false
	for part := range strings.SplitSeq(target, "/") {
		if part == ".." && down {
			return false
		}
		down = down || part != ".." && part != "." && part != ""
	}
	at := path.Join(path.Dir(name), target)
	return at != ".." && !strings.HasPrefix(at, "../") && (dir == "." || at == dir || strings.HasPrefix(at, dir+"/"))
}

// lfs begins what stands in git for a file that is somewhere else.
const lfs = "version https://git-lfs.github.com/spec/"

func writeContent(root *os.Root, f file, content io.Reader) (err error) {
	mode := os.FileMode(0o644)
	if f.mode == executable {
		mode = 0o755
	}
	out, err := root.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	begin := make([]byte, min(f.size, int64(len(lfs))))
	if _, err := io.ReadFull(content, begin); err != nil {
		return err
	}
	if string(begin) == lfs && f.size < 1024 {
		return cli.WithHint(errors.New("the file is a pointer of Git LFS: its content is not in the repository"),
			"have it in the repository, or in a package")
	}
	if _, err := out.Write(begin); err != nil {
		return err
	}
	if n, err := io.Copy(out, content); err != nil || n != f.size-int64(len(begin)) {
		return errors.Join(err, fmt.Errorf("%d bytes came, not %d", n+int64(len(begin)), f.size))
	}
	return out.Chmod(mode)
}

// dateAll gives everything one date.
func dateAll(dir string, date time.Time) error {
	return filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.Type()&os.ModeSymlink != 0 {
			return err // mksquashfs dates links
		}
		return os.Chtimes(name, date, date)
	})
}
