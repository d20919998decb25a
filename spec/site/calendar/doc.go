// SPDX-License-Identifier: Apache-2.0

// Package calendar turns the rules of a maintenance window into intervals of UTC, so
// that a node compares a clock with numbers and needs neither time zones nor rules.
//
// A rule names the day on which a window opens; from there elapsed time counts, so
// neither midnight nor a clock change moves where it closes. A local time that does
// not exist opens at the next one that does, one that occurs twice at the first.
// Exceptions cut, they do not shift. The package reads no clock and no file: zones
// come from a copy of the tz database that is linked in, the same on every machine
// that publishes.
package calendar
