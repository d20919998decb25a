// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unique"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci/internal/strict"
)

// Ref is a place that holds a fleet's artifacts: a prefix on a registry, or a
// directory in the OCI image layout.
type Ref struct {
	Host   string // host[:port]; empty for a layout
	Prefix string // path below the host, may be empty
	Layout string // directory; empty for a registry
}

var prefixForm = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

// ParseRef reads "host[:port]/prefix" or "oci:DIR".
func ParseRef(s string) (Ref, error) {
	if dir, ok := strings.CutPrefix(s, "oci:"); ok {
		if dir == "" || strings.ContainsRune(dir, 0) {
			return Ref{}, badRef("reference %q names no directory", s)
		}
		return Ref{Layout: filepath.Clean(dir)}, nil
	}
	host, prefix, _ := strings.Cut(strings.TrimSuffix(s, "/"), "/")
	u, err := url.Parse("https://" + host)
	switch {
	case err != nil || u.Hostname() == "" || u.User != nil || u.Host != host || strings.HasSuffix(host, ":"):
		return Ref{}, badRef("reference %q is not host[:port]/prefix or oci:DIR", s)
	case prefix != "" && !prefixForm.MatchString(prefix):
		return Ref{}, badRef("reference %q: a prefix has lower-case letters, digits, dots and dashes, without tag or digest", s)
	}
	return Ref{Host: host, Prefix: prefix}, nil
}

// refError is invalid input, for internal/cli.
type refError struct{ error }

func badRef(format string, args ...any) error { return refError{fmt.Errorf(format, args...)} }

func (refError) Hint() string  { return "as in registry.example.org:5000/metal-a, or oci:./out" }
func (refError) ExitCode() int { return 2 }

// Loopback reports whether the registry is on this machine: what is sent there
// needs no TLS.
func (r Ref) Loopback() bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// IsLayout says whether r is a directory.
func (r Ref) IsLayout() bool { return r.Layout != "" }

// Repo is the full path of a repository of r, for example "metal-a/node". In a
// layout repositories have no prefix.
func (r Ref) Repo(name string) string {
	if r.Prefix == "" {
		return name
	}
	return r.Prefix + "/" + name
}

func (r Ref) String() string {
	switch {
	case r.IsLayout():
		return "oci:" + r.Layout
	case r.Prefix == "":
		return r.Host
	}
	return r.Host + "/" + r.Prefix
}

var (
	repoForm = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*$`)
	tagForm  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`) // of at most 128
)

// ValidTag says whether s may be a tag.
func ValidTag(s string) bool { return len(s) <= 128 && tagForm.MatchString(s) }

// CheckName returns an error unless repo is the name of a repository and reference
// a tag or a digest. It guards the places where names become paths and URLs.
func CheckName(repo, reference string) error {
	if !repoForm.MatchString(repo) {
		return fmt.Errorf("repository name %q is not valid", repo)
	}
	if !ValidTag(reference) && !ValidDigest(reference) {
		return fmt.Errorf("tag or digest %q is not valid", reference)
	}
	return nil
}

// BlobPath is where a layout keeps the content of a valid digest.
func BlobPath(digest string) string {
	return "blobs/sha256/" + digests.Hex(digest)
}

// Named is a descriptor of a layout's index.json.
type Named struct {
	Name string // its annotation ref.name, "repository:tag"; "" is without a tag
	Descriptor
}

const (
	layoutBegins = `{"schemaVersion":2,"mediaType":"` + MediaTypeIndex + `","manifests":[`
	nameBegins   = `,"annotations":{"` + AnnotationRefName + `":"`
)

// WriteLayoutIndex writes index.json as encoding/json does, without its cost: it has an entry for each
// node of a fleet.
func WriteLayoutIndex(w io.Writer, list iter.Seq[Named]) error {
	b := bufio.NewWriterSize(w, 64<<10)
	raw := []byte(layoutBegins)
	for n := range list {
		if len(raw) == 0 {
			raw = append(raw, ',')
		}
		raw = n.appendTo(raw)
		_, _ = b.Write(raw) // Flush has the first error of all
		raw = raw[:0]
	}
	_, _ = b.Write(append(raw, "]}"...)) // Flush has the first error of all
	return b.Flush()
}

func (n Named) appendTo(raw []byte) []byte {
	plain := isPlain(n.Name) && isPlain(n.MediaType) && isPlain(n.Digest) && isPlain(n.ArtifactType)
	if !plain || n.Data != nil || n.Annotations != nil || n.Platform != nil {
		d := n.Descriptor
		if n.Name != "" {
			d.Annotations = map[string]string{AnnotationRefName: n.Name}
			maps.Copy(d.Annotations, n.Annotations)
		}
		return append(raw, Encode(d)...)
	}
	raw = appendAll(raw, `{"mediaType":"`, n.MediaType, `","digest":"`, n.Digest, `","size":`)
	raw = strconv.AppendInt(raw, n.Size, 10)
	if n.ArtifactType != "" {
		raw = appendAll(raw, `,"artifactType":"`, n.ArtifactType, `"`)
	}
	if n.Name != "" {
		raw = appendAll(raw, nameBegins, n.Name, `"}`)
	}
	return append(raw, '}')
}

func appendAll(raw []byte, texts ...string) []byte {
	for _, text := range texts {
		raw = append(raw, text...)
	}
	return raw
}

// isPlain reports whether a text stands in JSON as it is; there are others that do.
func isPlain(text string) bool {
	for i := range len(text) {
		c := text[i]
		if (c|' ' < 'a' || c|' ' > 'z') && (c < '+' || c > ':' || c == ',') && c != '_' {
			return false
		}
	}
	return true
}

// ParseLayoutIndex reads a layout's index.json: an index without a cap on its
// entries, whose media type may be absent.
func ParseLayoutIndex(raw []byte) ([]Named, error) {
	if list, ok := parseOwn(raw); ok {
		return list, nil
	}
	var x Index
	if err := strict.Decode(raw, &x); err != nil {
		return nil, &DamagedError{fmt.Errorf("index.json: %w", err)}
	}
	if x.MediaType != "" && x.MediaType != MediaTypeIndex {
		return nil, &DamagedError{fmt.Errorf("index.json has the media type %q", x.MediaType)}
	}
	var list []Named
	for i, d := range x.Manifests {
		if err := whole.checkDescriptor(d, fmt.Sprintf("index.json: descriptor %d", i)); err != nil {
			return nil, err
		}
		n := Named{d.Annotations[AnnotationRefName], d}
		if n.Name != "" && len(d.Annotations) == 1 {
			n.Annotations = nil
		}
		list = append(list, n)
	}
	return list, nil
}

// parseOwn is for what [WriteLayoutIndex] wrote: texts are taken out of what looks like it, and whether
// it is that follows from encoding them again. For all else ok is false.
func parseOwn(raw []byte) (list []Named, ok bool) {
	text, begins := strings.CutPrefix(string(raw), layoutBegins+"{")
	text, ends := strings.CutSuffix(text, "}]}")
	if !begins || !ends {
		return nil, false
	}
	var again []byte
	for entry := range strings.SplitSeq(text, "},{") {
		member := func(begins, ends string) string {
			_, text, _ := strings.Cut(entry, begins)
			text, _, _ = strings.Cut(text, ends)
			return text
		}
		n := Named{Name: strings.Clone(member(nameBegins, `"`))}
		n.MediaType = unique.Make(member(`"mediaType":"`, `"`)).Value() // they are few
		n.ArtifactType = unique.Make(member(`"artifactType":"`, `"`)).Value()
		n.Digest = strings.Clone(member(`"digest":"`, `"`))
		n.Size, _ = strconv.ParseInt(member(`"size":`, ","), 10, 64) // another text than a number is encoded otherwise
		again = n.appendTo(again[:0])
		if string(again[1:len(again)-1]) != entry || whole.checkDescriptor(n.Descriptor, "") != nil {
			return nil, false
		}
		list = append(list, n)
	}
	return list, true
}

// DamagedError is the error for a layout whose files are not what they were: cut,
// altered or of another program. Asking again does not help.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string { return e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// Hint says what an operator can do about it.
func (e *DamagedError) Hint() string {
	return "put back a copy of the layout, or build and publish into a new directory"
}
