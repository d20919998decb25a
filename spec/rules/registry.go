// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/url"
	"regexp"
	"strings"
)

const registryHint = "as in registry.example.org:5000/metal-a, or oci:./out for a directory"

var (
	registryPrefix = regexp.MustCompile(`^/[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	registryScheme = regexp.MustCompile(`^[a-z0-9+.-]+://`)
)

// Registry checks where a site says that it is published: host[:port]/prefix of a registry,
// or oci:DIR. A word alone is refused, although a host could have that name: a directory is
// meant more often.
func Registry(text string) error {
	if dir, layout := strings.CutPrefix(text, "oci:"); layout {
		if dir == "" || !printable(dir) {
			return invalid("registry", "as in oci:./out", "%q names no directory", text)
		}
		return nil
	}
	bare := strings.TrimSuffix(text, "/")
	host, _, _ := strings.Cut(bare, "/")
	switch scheme := registryScheme.FindString(text); {
	case scheme != "":
		return invalid("registry", "write "+strings.TrimPrefix(text, scheme)+"; --plain-http of a verb talks HTTP", "%q has a scheme: registries are asked by https", text)
	case strings.HasPrefix(text, ".") || strings.HasPrefix(text, "/"):
		return invalid("registry", "write oci:"+text, "%q is a directory, and not host[:port]/prefix of a registry", text)
	case bare == host && host != "localhost" && !strings.ContainsAny(host, ".:"):
		return invalid("registry", "write oci:./"+host+" for a directory, "+host+":443 for a host of that name", "%q is neither host[:port]/prefix of a registry nor oci:DIR", text)
	}
	return registry(bare, false)
}

// reportRegistry says whether reports may be put there. A layout is a directory of one
// machine, and a tag is each node's own.
func reportRegistry(text string) error { return registry(text, true) }

// registry checks host[:port]/prefix, see oci.ParseRef; the prefix may be absent unless it
// is asked for.
func registry(text string, prefix bool) error {
	u, err := url.Parse("https://" + text)
	switch {
	case err != nil || u.Hostname() == "" || u.User != nil || strings.HasSuffix(u.Host, ":") || text != u.Host+u.Path:
	case (prefix || u.Path != "") && !registryPrefix.MatchString(u.Path):
		if name, tag, ok := strings.Cut(u.Path, ":"); ok && registryPrefix.MatchString(name) {
			return invalid("registry", "write "+u.Host+name+" without :"+tag, "%q has a tag or a digest: caisson names its own", text)
		}
	default:
		return nil
	}
	return invalid("registry", registryHint, "%q is not host[:port]/prefix of a registry", text)
}
