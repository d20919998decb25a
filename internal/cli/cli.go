// SPDX-License-Identifier: Apache-2.0

// Package cli is the voice of both programs: how an error reads, which exit code
// it has, and what goes where.
//
// The rules: results go to standard output, talk goes to standard error. A line
// of talk starts with the program's name, is lower case and has no full stop.
// An error may carry a hint (a method Hint() string), an exit code (ExitCode()
// int) and a refusal code (RefusalCode() string); cli sees errors only through
// these three. With -o json, standard output holds JSON and nothing else.
package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/caisson-os/caisson/internal/plain"
)

// Exit codes of both programs.
const (
	ExitOK      = 0
	ExitError   = 1
	ExitUsage   = 2 // wrong call or invalid input
	ExitDrift   = 3 // drift, or a pending change
	ExitRefused = 4 // refused; the refusal code is printed
	ExitFailed  = 5 // a node that was tried is not as it should be

	ExitInterrupted = 130 // by SIGINT, as shells report it
)

// ExitCodes is the text for --help.
const ExitCodes = `Exit codes: 0 done, 1 error, 2 usage or invalid input, 3 drift or pending change, 4 refused, ` +
	`5 a tried node failed, 130 interrupted`

// ErrDrift ends a verb whose answer is "there is something to do": the verb has
// said all there is to say, only the exit code is left.
var ErrDrift error = quiet(ExitDrift)

// ErrFailed ends a verb that has tried a node, and has said what is wrong with it.
var ErrFailed error = quiet(ExitFailed)

// ErrInvalid ends a verb that has already reported what is wrong with its input.
var ErrInvalid error = quiet(ExitUsage)

type quiet int

func (q quiet) Error() string { return fmt.Sprintf("exit code %d", int(q)) }
func (q quiet) ExitCode() int { return int(q) }

// Usage returns an error for a wrong call, with a hint.
func Usage(hint, format string, args ...any) error {
	return &hinted{err: fmt.Errorf(format, args...), hint: hint, code: ExitUsage}
}

// Hint returns an error with what the user can do about it.
func Hint(hint, format string, args ...any) error {
	return WithHint(fmt.Errorf(format, args...), hint)
}

// Refused returns an error for what was looked at and does not count.
func Refused(format string, args ...any) error {
	return &hinted{err: fmt.Errorf(format, args...), code: ExitRefused}
}

// WithHint adds to err what the user can do about it.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &hinted{err: err, hint: hint, code: Code(err)}
}

type hinted struct {
	err  error
	hint string
	code int
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }
func (h *hinted) Hint() string  { return h.hint }
func (h *hinted) ExitCode() int { return h.code }

// Code is the exit code for err. That of a program that caisson ran (apt's 100)
// says nothing about this one.
func Code(err error) int {
	if err == nil {
		return ExitOK
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		if _, child := coded.(*exec.ExitError); !child {
			return coded.ExitCode()
		}
	}
	var refused interface{ RefusalCode() string }
	if errors.As(err, &refused) {
		return ExitRefused
	}
	return ExitError
}

// Interrupted returns the error of a verb that a signal ended with err. What err
// says is of no use then, unless it says itself that it was interrupted.
func Interrupted(err error) error {
	text := "interrupted"
	if strings.HasPrefix(err.Error(), text) {
		text = err.Error()
	}
	return interrupted(text)
}

type interrupted string

func (i interrupted) Error() string { return string(i) }
func (interrupted) ExitCode() int   { return ExitInterrupted }

// Failure is an error as -o json prints it, to standard error.
type Failure struct {
	Error   string `json:"error"`
	Hint    string `json:"hint,omitempty"`
	Refused string `json:"refused,omitempty"` // the refusal code
	Exit    int    `json:"exit"`
}

// failureOf returns err as a [Failure], nil when there is nothing to print.
func failureOf(err error) *Failure {
	var q quiet
	if err == nil || errors.As(err, &q) {
		return nil
	}
	f := &Failure{Error: err.Error(), Hint: HintOf(err), Exit: Code(err)}
	var refused interface{ RefusalCode() string }
	if errors.As(err, &refused) {
		f.Refused = refused.RefusalCode()
	}
	return f
}

// HintOf returns the hint of an error, "" where it has none.
func HintOf(err error) string {
	var hinter interface{ Hint() string }
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return ""
}

// ReportJSON is Report for -o json: one object to w.
func ReportJSON(w io.Writer, err error) int {
	if f := failureOf(err); f != nil {
		_ = JSON(w, f) // there is nowhere left to say that standard error is closed
	}
	return Code(err)
}

// Report prints err the way the rules say and returns its exit code.
func Report(w io.Writer, program string, err error) int {
	f := failureOf(err)
	if f == nil {
		return Code(err)
	}
	if f.Refused != "" {
		Printf(w, "%s: refused (%s): %v\n", program, f.Refused, err)
	} else {
		Printf(w, "%s: error: %v\n", program, err)
	}
	if f.Hint != "" {
		Printf(w, "%s: hint: %s\n", program, f.Hint)
	}
	return Code(err)
}

// Sayf prints one line of talk.
func Sayf(w io.Writer, program, format string, args ...any) {
	Printf(w, "%s: ", program)
	Printf(w, format+"\n", args...)
}

// Printf prints a result for people: what comes from outside cannot steer their
// terminal or forge a line. A write that fails is kept by [Output].
func Printf(w io.Writer, format string, args ...any) {
	_, _ = io.WriteString(w, plain.Sprintf(format, args...)) // see above
}

// Output is standard output as verbs print to it: they need not look at each
// write, the first that failed ends the verb in Conclude.
type Output struct {
	w   io.Writer
	err error
}

// NewOutput returns an Output that writes to w.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	o.err = err
	return n, err
}

// Conclude returns how a verb ends that returned err: a result that could not be
// printed in full is an error, also when all else went well.
func (o *Output) Conclude(err error) error {
	var q quiet
	if o.err != nil && (err == nil || errors.As(err, &q)) {
		return fmt.Errorf("print the result: %w", o.err)
	}
	return err
}

// JSON prints v for -o json, indented, one document.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// IsTerminal says whether f is a terminal: progress bars and colour are for
// those only.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// HelpWidth is that of a line of help.
const HelpWidth = 100

// Wrap breaks each paragraph of a help text into lines of at most [HelpWidth] characters.
// Lines that begin with a blank stay as they are.
func Wrap(text string) string {
	var out []string
	open := false // the last line may go on
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' {
			out, open = append(out, line), false
			continue
		}
		for _, word := range strings.Fields(line) {
			if last := len(out) - 1; open && utf8.RuneCountInString(out[last])+1+utf8.RuneCountInString(word) <= HelpWidth {
				out[last] += " " + word
			} else {
				out, open = append(out, word), true
			}
		}
	}
	return strings.Join(out, "\n")
}

// ShellWord returns a text as one word of a shell.
func ShellWord(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:=@") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Console shows a machine's console as talk, a line at a time. What the machine
// prints steers nobody's terminal.
type Console struct {
	To io.Writer // nil shows nothing

	mu        sync.Mutex
	sequences plain.Sequences
	line      []byte
}

// longestLine is where a line is taken apart that has no end.
const longestLine = 1000

// Write implements io.Writer, and takes everything.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range p {
		if !c.sequences.Text(b) {
			continue
		}
		if full := len(c.line) - longestLine; b == '\n' || full >= utf8.UTFMax || full >= 0 && utf8.RuneStart(b) {
			c.show()
		}
		if b != '\n' && b != '\r' {
			c.line = append(c.line, b)
		}
	}
	return len(p), nil
}

// show prints what has come of a line. The lock is held.
func (c *Console) show() {
	text := strings.TrimSpace(string(c.line))
	c.line = c.line[:0]
	if text != "" && c.To != nil {
		Printf(c.To, "  console | %s\n", text)
	}
}

// Mute ends the show: the terminal is somebody else's.
func (c *Console) Mute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.To = nil
}

// Writable refuses the name of a file that cannot be written, or holds a private key: a verb asks before it works for
// minutes on what belongs there. None is no file.
func Writable(flag, name string) error {
	switch info, err := os.Stat(name); {
	case name == "":
		return nil
	case err == nil && info.IsDir():
		return Usage("name a file in it", "%s: %s is a directory", flag, name)
	case err == nil && !info.Mode().IsRegular():
		return nil // a device or a pipe
	case err == nil && info.Size() <= 64<<10: // no key is larger
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return WithHint(fmt.Errorf("%s: %w", flag, err), "what cannot be read may be a key, which is never overwritten: name another file")
		}
		if bytes.Contains(text, []byte("PRIVATE KEY-----")) {
			return Usage("keys are never overwritten: name another file", "%s: %s holds a private key", flag, name)
		}
	}
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, ".caisson.*")
	if errors.Is(err, fs.ErrNotExist) {
		return Usage("'mkdir -p "+dir+"' makes it", "%s: there is no directory %s", flag, dir)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Absent adds a hint to an error of a file that is not there.
func Absent(err error, hint string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return WithHint(err, hint)
	}
	return err
}

// fullBelow is how many bytes are too few for anything that caisson writes.
const fullBelow = 4 << 20

// Full names, for an error, the directories that have no space left: programs that caisson
// runs say so in words of their own, and not where.
func Full(err error, dirs ...string) error {
	for _, dir := range dirs {
		var s syscall.Statfs_t
		if err == nil || dir == "" || syscall.Statfs(dir, &s) != nil || s.Blocks == 0 {
			continue
		}
		if s.Bavail*uint64(s.Bsize) < fullBelow || s.Files > 0 && s.Ffree == 0 {
			return WithHint(fmt.Errorf("%w; the file system of %s is full", err, dir), "free some space there, or name another directory")
		}
	}
	return err
}

// Reached adds a hint to an error of the network, or of a directory that takes nothing, that
// has none.
func Reached(err error) error {
	var hinter interface{ Hint() string }
	if err == nil || errors.As(err, &hinter) && hinter.Hint() != "" {
		return err
	}
	var dial *net.OpError
	var name *net.DNSError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return WithHint(err, "the registry serves plain HTTP: add --plain-http if the network between is trusted")
	case errors.As(err, &name):
		return WithHint(err, "is the registry's name right? A directory is written oci:DIR")
	case errors.As(err, &dial) && dial.Op == "dial":
		return WithHint(err, "is the registry running, and is that its address?")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return WithHint(err, "free some space there, or name another directory")
	case errors.Is(err, syscall.EROFS):
		return WithHint(err, "that is mounted read-only: name another directory")
	case errors.Is(err, fs.ErrPermission):
		return WithHint(err, "run it as a user with permission, or name another file or directory")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return WithHint(err, "the answer ended early: try again, and look at the registry and what is before it")
	}
	return err
}
