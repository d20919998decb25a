// SPDX-License-Identifier: Apache-2.0

// Package report tells people what is wrong with what they wrote: all of it at
// once, each with its place, a rule that tools can rely on, and a hint.
//
// It is not about errors of a program: those are Go errors, and [Report.Err]
// makes one of a report. What it prints cannot steer a terminal, whatever stood
// in the input. The packages below spec/site fill reports; the command line
// prints them. It imports nothing of the project.
package report
