// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
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
