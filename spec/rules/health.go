// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// Limits of a health check, in seconds and failures.
const (
	MaxCheckTimeout = 10 * 60
	MaxCheckPause   = 60 * 60
	MaxCheckSoak    = 24 * 60 * 60
	MaxCheckRetries = 1000
)

// HealthCheck checks one health check. What a field may be is the same
// for one that is written and one that was published.
func HealthCheck(h spec.HealthCheck) error {
	var f fields
	f.add("name", ID(h.Name))
	switch {
	case Given(len(h.Command) > 0, h.Unit != "", h.TCP != "", h.HTTP != "", h.File != "") != 1:
		f.add("", invalid("health-kind", "one of command, unit, tcp, http and file", "a check looks at one thing"))
	case len(h.Command) > 0:
		f.add("command", Argv(h.Command))
	case h.Unit != "":
		f.add("unit", Unit(h.Unit))
	case h.TCP != "":
		f.add("tcp", hostPort(h.TCP))
	case h.HTTP != "":
		f.add("http", webAddress(h.HTTP))
	case !path.IsAbs(h.File) || path.Clean(h.File) != h.File || h.File == "/" || strings.ContainsRune(h.File, 0):
		f.add("file", invalid("path", "as in /run/ready", "%.80q is not the absolute path of a file", h.File))
	}
	f.add("status", refuse(h.Status != 0 && (h.HTTP == "" || h.Status < 100 || h.Status > 599), "range", "as in 200 or 401, beside http",
		"%d is not the status of an answer that is looked at", h.Status))
	span := func(field string, n, least, most int64) {
		f.add(field, refuse(n < least || n > most, "range", "", "%s is %d, from %d to %d are possible", field, n, least, most))
	}
	span("timeout", h.Timeout, 1, MaxCheckTimeout)
	span("interval", h.Interval, 1, MaxCheckPause)
	span("retries", h.Retries, 0, MaxCheckRetries)
	span("soak", h.Soak, 0, MaxCheckSoak)
	return f.err()
}

func hostPort(text string) error {
	host, port, ok := cutPort(text)
	return refuse(!ok || !hostName(host) || !portNumber(port), "address", "as in 127.0.0.1:6443, [::1]:22 or registry.example:5000",
		"%.80q is not a host with a port", text)
}

// cutPort parts host:port; an IPv6 address stands in brackets.
func cutPort(text string) (host, port string, ok bool) {
	at := strings.LastIndexByte(text, ':')
	if at < 0 {
		return "", "", false
	}
	host, port = text[:at], text[at+1:]
	if inner, found := strings.CutPrefix(host, "["); found {
		host, ok = strings.CutSuffix(inner, "]")
		return host, port, ok && strings.Contains(host, ":")
	}
	return host, port, !strings.Contains(host, ":")
}

func hostName(host string) bool {
	const chars = lower + upper + digits + ".:_-"
	return len(host) <= 253 && spelled(host, chars, chars)
}

func portNumber(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}

func webAddress(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || !hostName(u.Hostname()) || u.Port() != "" &&
		!portNumber(u.Port()) || !printable(text) {
		return invalid("url", "as in http://127.0.0.1:10248/healthz", "%.80q is not the address of a page", text)
	}
	return refuse(u.User != nil, "url", "", "the URL holds a user or a password, and everyone can read it")
}

// Bound is a [spec.Analysis.Worse] that was read.
type Bound struct {
	Below bool    // what is below it is worse; else what is above it
	Times bool    // Value is a factor
	Value float64 // not negative
}

var boundText = regexp.MustCompile(`^([<>]) ?([0-9]{1,12}(?:\.[0-9]{1,12})?)( ?[×x])?$`)

// Worse reads when a mean is worse, as in "> 1.2 ×" or "< 0.99".
func Worse(text string) (Bound, error) {
	m := boundText.FindStringSubmatch(text)
	if m == nil {
		return Bound{}, fmt.Errorf(`%q is not a bound, as in "> 1.2 ×" or "< 0.99"`, text)
	}
	value, err := strconv.ParseFloat(m[2], 64)
	if err != nil {
		return Bound{}, fmt.Errorf("bound %q: %w", text, err)
	}
	return Bound{Below: m[1] == "<", Times: m[3] != "", Value: value}, nil
}

// Of returns the limit that it makes of the mean of others.
func (b Bound) Of(others float64) float64 {
	if b.Times {
		return b.Value * others
	}
	return b.Value
}

// Beyond reports whether a mean is worse than a limit.
func (b Bound) Beyond(mean, limit float64) bool {
	if b.Below {
		return mean < limit
	}
	return mean > limit
}
