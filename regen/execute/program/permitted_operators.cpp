#include "regen/execute/program/permitted_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "regen/execute/program/operator_call.h"

namespace regen::execute {
namespace {

constexpr std::string_view kNamespace = "aten::";

// Beside those that PyTorch tags as core or pointwise. An operator belongs here if all that it does
// is to compute its results, from tensors that are as large as they say.
const std::unordered_set<std::string_view>& functional_operators() {
  static const std::unordered_set<std::string_view> names{
      // Shapes, views, copies, constants.
      "_chunk_cat", "_conj", "_conj_copy", "_neg_view", "_pack_padded_sequence",
      "_pack_padded_sequence_backward", "_pad_circular", "_pad_enum", "_pad_packed_sequence",
      "_reshape_alias", "_reshape_alias_copy", "_reshape_copy", "_shape_as_tensor", "_stack",
      "_unsafe_view", "alias_copy", "as_strided_copy", "as_strided_scatter", "atleast_1d",
      "atleast_2d", "atleast_3d", "bartlett_window", "blackman_window", "block_diag",
      "broadcast_tensors", "broadcast_to", "cartesian_prod", "channel_shuffle", "chunk",
      "column_stack", "combinations", "complex", "concat", "concatenate", "conj", "contiguous",
      "detach", "detach_copy", "diag", "diag_embed", "diagonal_backward", "diagonal_copy",
      "diagonal_scatter", "dsplit", "dstack", "empty_like", "empty_permuted", "expand_as",
      "expand_copy", "eye", "flatten", "fliplr", "flipud", "hamming_window", "hann_window",
      "hsplit", "hstack", "imag", "kaiser_window", "lift", "lift_fresh", "lift_fresh_copy",
      "linspace", "logspace", "mH", "mT", "matrix_H", "meshgrid", "moveaxis", "movedim", "narrow",
      "narrow_copy", "native_channel_shuffle", "new_empty", "new_empty_strided", "new_full",
      "new_ones", "new_zeros", "numpy_T", "one_hot", "ones", "ones_like", "pad", "pad_sequence",
      "permute_copy", "pin_memory", "pixel_shuffle", "pixel_unshuffle", "polar", "ravel", "real",
      "repeat_interleave", "reshape", "reshape_as", "resolve_conj", "resolve_neg", "roll", "rot90",
      "row_stack", "select_backward", "select_copy", "slice_backward", "slice_copy",
      "slice_inverse", "split", "split_copy", "split_with_sizes_copy", "squeeze_copy", "stack",
      "swapaxes", "swapdims", "t", "t_copy", "tensor_split", "tile", "to", "trace",
      "trace_backward", "transpose", "transpose_copy", "tril", "tril_indices", "triu",
      "triu_indices", "type_as", "unbind", "unbind_copy", "unflatten", "unfold", "unfold_backward",
      "unfold_copy", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "unsqueeze_copy",
      "vander", "view_as", "view_as_complex", "view_as_complex_copy", "view_as_real",
      "view_as_real_copy", "view_copy", "vsplit", "vstack", "zero", "zeros", "zeros_like",
      // Indices, sorting, counting.
      "_cummax_helper", "_cummin_helper", "_index_put_impl", "_segment_reduce_backward", "_unique",
      "_unique2", "_unsafe_index", "_unsafe_index_put", "_unsafe_masked_index",
      "_unsafe_masked_index_put_accumulate", "argsort", "argwhere", "bincount", "bucketize",
      "count_nonzero", "cummax", "cummaxmin_backward", "cummin", "embedding_renorm",
      "gather_backward", "histc", "histogram", "index_add", "index_copy", "index_fill",
      "index_reduce", "index_select_backward", "isin", "kthvalue", "masked_scatter_backward",
      "masked_select", "masked_select_backward", "median", "mode", "msort", "nanmedian",
      "nonzero_numpy", "nonzero_static", "put", "renorm", "searchsorted", "segment_reduce", "take",
      "take_along_dim", "unique_consecutive", "unique_dim", "unique_dim_consecutive",
      "value_selecting_reduction_backward",
      // Sums, norms, distances.
      "_aminmax", "_cdist_backward", "_dirichlet_grad", "_euclidean_dist", "_logcumsumexp",
      "_pdist_backward", "_standard_gamma", "_standard_gamma_grad", "_weight_norm",
      "_weight_norm_differentiable_backward", "_weight_norm_interface",
      "_weight_norm_interface_backward", "all", "aminmax", "cdist", "corrcoef", "cov", "cumprod",
      "cumprod_backward", "cumulative_trapezoid", "diff", "dist", "frobenius_norm", "gradient",
      "linalg__powsum", "linalg_vector_norm", "logcumsumexp", "logsumexp", "nanmean", "nanquantile",
      "nansum", "native_norm", "norm", "norm_except_dim", "nuclear_norm", "pairwise_distance",
      "pdist", "quantile", "special_logsumexp", "std", "std_mean", "sum_to_size", "trapezoid",
      "trapz", "var_mean",
      // Matrices.
      "_addmm_activation", "_cholesky_solve_helper", "_compute_linear_combination", "_foreach_mm",
      "_grouped_mm", "_int_mm", "_linalg_check_errors", "_linalg_det", "_linalg_eigh",
      "_linalg_eigvals", "_linalg_slogdet", "_linalg_solve_ex", "_linalg_svd", "_lu_with_info",
      "_mixed_dtypes_linear", "_scaled_grouped_mm", "_scaled_mm", "_trilinear",
      "_weight_int8pack_mm", "addbmm", "addmv", "addr", "baddbmm", "bilinear", "chain_matmul",
      "cholesky", "cholesky_inverse", "cholesky_solve", "cross", "det", "dot", "einsum", "geqrf",
      "ger", "inner", "inverse", "kron", "linalg_cholesky", "linalg_cholesky_ex", "linalg_cond",
      "linalg_cross", "linalg_det", "linalg_diagonal", "linalg_eig", "linalg_eigh",
      "linalg_eigvals", "linalg_eigvalsh", "linalg_householder_product", "linalg_inv",
      "linalg_inv_ex", "linalg_ldl_factor", "linalg_ldl_factor_ex", "linalg_ldl_solve",
      "linalg_lstsq", "linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_lu_solve",
      "linalg_matmul", "linalg_matrix_exp", "linalg_matrix_norm", "linalg_matrix_power",
      "linalg_matrix_rank", "linalg_multi_dot", "linalg_norm", "linalg_pinv", "linalg_qr",
      "linalg_slogdet", "linalg_solve", "linalg_solve_ex", "linalg_solve_triangular", "linalg_svd",
      "linalg_svdvals", "linalg_tensorinv", "linalg_tensorsolve", "linalg_vander", "linalg_vecdot",
      "linear", "linear_backward", "logdet", "lu_solve", "lu_unpack", "matmul", "matmul_backward",
      "matrix_exp", "matrix_exp_backward", "matrix_power", "mkldnn_linear",
      "mkldnn_linear_backward", "mv", "orgqr", "ormqr", "outer", "pinverse", "qr", "slogdet", "svd",
      "tensordot", "triangular_solve", "vdot",
      // Activations and their gradients.
      "_log_softmax_backward_data", "_masked_softmax", "_masked_softmax_backward", "_prelu_kernel",
      "_prelu_kernel_backward", "_safe_softmax", "_softmax_backward_data", "elu_backward", "glu",
      "glu_backward", "glu_backward_jvp", "glu_jvp", "hardshrink_backward", "hardsigmoid_backward",
      "hardswish", "hardswish_backward", "hardtanh_backward",
      "infinitely_differentiable_gelu_backward", "leaky_relu_backward", "log_sigmoid",
      "log_sigmoid_backward", "log_sigmoid_forward", "log_softmax", "mish_backward", "prelu",
      "rrelu_with_noise_backward", "rrelu_with_noise_functional", "softmax", "softplus_backward",
      "softshrink_backward", "special_log_softmax", "special_softmax",
      // Normalisation.
      "_batch_norm_impl_index", "_batch_norm_impl_index_backward", "_batch_norm_no_update",
      "_batch_norm_with_update_functional", "_fused_rms_norm", "_fused_rms_norm_backward",
      "_native_batch_norm_legit_functional", "batch_norm", "batch_norm_backward",
      "batch_norm_backward_elemt", "batch_norm_backward_reduce", "batch_norm_elemt",
      "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts", "batch_norm_stats",
      "cudnn_batch_norm", "cudnn_batch_norm_backward", "group_norm", "instance_norm", "layer_norm",
      "miopen_batch_norm", "miopen_batch_norm_backward", "native_batch_norm",
      "native_batch_norm_backward", "rms_norm",
      // Convolutions and pooling.
      "_adaptive_avg_pool3d_backward", "_conv_depthwise2d", "_convolution",
      "_convolution_double_backward", "_convolution_mode", "_nnpack_spatial_convolution",
      "_slow_conv2d_backward", "_slow_conv2d_forward", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
      "adaptive_avg_pool3d_backward", "adaptive_max_pool1d", "adaptive_max_pool2d",
      "adaptive_max_pool2d_backward", "adaptive_max_pool3d", "adaptive_max_pool3d_backward",
      "avg_pool3d_backward", "conv1d", "conv2d", "conv3d", "conv_depthwise3d", "conv_tbc",
      "conv_tbc_backward", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
      "convolution_backward_overrideable", "convolution_overrideable", "cudnn_convolution",
      "cudnn_convolution_add_relu", "cudnn_convolution_relu", "cudnn_convolution_transpose",
      "fractional_max_pool2d", "fractional_max_pool2d_backward", "fractional_max_pool3d",
      "fractional_max_pool3d_backward", "im2col", "max_pool1d", "max_pool1d_with_indices",
      "max_pool2d", "max_pool2d_backward", "max_pool3d", "max_pool3d_with_indices_backward",
      "max_unpool2d", "max_unpool3d", "miopen_convolution", "miopen_convolution_transpose",
      "miopen_depthwise_convolution", "mkldnn_convolution", "slow_conv3d", "slow_conv3d_forward",
      "slow_conv_dilated2d", "slow_conv_dilated3d", "slow_conv_transpose2d",
      "slow_conv_transpose3d", "thnn_conv2d",
      // Attention and recurrence.
      "_cudnn_attention_backward", "_cudnn_attention_forward", "_cudnn_init_dropout_state",
      "_cudnn_rnn", "_cudnn_rnn_backward", "_cudnn_rnn_flatten_weight",
      "_efficient_attention_backward", "_efficient_attention_forward", "_flash_attention_backward",
      "_flash_attention_forward", "_fused_sdp_choice", "_native_multi_head_attention",
      "_scaled_dot_product_attention_math", "_scaled_dot_product_cudnn_attention",
      "_scaled_dot_product_cudnn_attention_backward", "_scaled_dot_product_efficient_attention",
      "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_flash_attention",
      "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_flash_attention_for_cpu",
      "_scaled_dot_product_flash_attention_for_cpu_backward",
      "_scaled_dot_product_fused_attention_overrideable",
      "_scaled_dot_product_fused_attention_overrideable_backward",
      "_thnn_differentiable_gru_cell_backward", "_thnn_differentiable_lstm_cell_backward",
      "_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward", "_thnn_fused_lstm_cell",
      "_thnn_fused_lstm_cell_backward", "_thnn_fused_lstm_cell_backward_impl",
      "_transform_bias_rescale_qkv", "_transformer_encoder_layer_fwd", "gru", "gru_cell", "lstm",
      "lstm_cell", "miopen_rnn", "miopen_rnn_backward", "mkldnn_rnn_layer",
      "mkldnn_rnn_layer_backward", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell",
      "scaled_dot_product_attention",
      // Dropout and random numbers.
      "_fused_dropout", "_masked_scale", "_sample_dirichlet", "alpha_dropout", "bernoulli",
      "binomial", "cauchy", "dropout", "exponential", "feature_alpha_dropout", "feature_dropout",
      "geometric", "log_normal", "multinomial", "normal", "normal_functional", "poisson",
      "rand_like", "randint", "randint_like", "randn_like", "random", "uniform",
      // Embeddings and losses.
      "_ctc_loss", "_ctc_loss_backward", "_cudnn_ctc_loss", "_embedding_bag_backward",
      "_embedding_bag_dense_backward", "_embedding_bag_forward_only",
      "_embedding_bag_per_sample_weights_backward", "binary_cross_entropy",
      "binary_cross_entropy_backward", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
      "cosine_similarity", "cross_entropy_loss", "ctc_loss", "embedding_backward", "embedding_bag",
      "hinge_embedding_loss", "huber_loss", "huber_loss_backward", "kl_div", "l1_loss",
      "margin_ranking_loss", "mse_loss", "mse_loss_backward", "multi_margin_loss",
      "multi_margin_loss_backward", "multilabel_margin_loss", "multilabel_margin_loss_backward",
      "multilabel_margin_loss_forward", "nll_loss", "nll_loss2d", "nll_loss2d_backward",
      "nll_loss2d_forward", "nll_loss_backward", "nll_loss_forward", "nll_loss_nd",
      "poisson_nll_loss", "smooth_l1_loss", "smooth_l1_loss_backward", "soft_margin_loss",
      "soft_margin_loss_backward", "triplet_margin_loss",
      // Images and signals.
      "_fft_c2c", "_upsample_bicubic2d_aa", "_upsample_bicubic2d_aa_backward",
      "_upsample_bilinear2d_aa", "_upsample_bilinear2d_aa_backward", "_upsample_nearest_exact1d",
      "_upsample_nearest_exact1d_backward", "_upsample_nearest_exact2d",
      "_upsample_nearest_exact2d_backward", "_upsample_nearest_exact3d",
      "_upsample_nearest_exact3d_backward", "affine_grid_generator",
      "affine_grid_generator_backward", "cudnn_affine_grid_generator",
      "cudnn_affine_grid_generator_backward", "cudnn_grid_sampler", "cudnn_grid_sampler_backward",
      "fft_fft", "fft_fft2", "fft_fftfreq", "fft_fftn", "fft_fftshift", "fft_hfft", "fft_hfft2",
      "fft_hfftn", "fft_ifft", "fft_ifft2", "fft_ifftn", "fft_ifftshift", "fft_ihfft", "fft_ihfft2",
      "fft_ihfftn", "fft_irfft", "fft_irfft2", "fft_irfftn", "fft_rfft", "fft_rfft2",
      "fft_rfftfreq", "fft_rfftn", "grid_sampler", "grid_sampler_2d_backward", "grid_sampler_3d",
      "grid_sampler_3d_backward", "istft", "reflection_pad1d_backward", "reflection_pad2d_backward",
      "reflection_pad3d_backward", "replication_pad1d", "replication_pad1d_backward",
      "replication_pad2d_backward", "replication_pad3d_backward", "stft", "upsample_bicubic2d",
      "upsample_bicubic2d_backward", "upsample_bilinear2d_backward", "upsample_linear1d",
      "upsample_linear1d_backward", "upsample_nearest1d", "upsample_nearest1d_backward",
      "upsample_nearest2d_backward", "upsample_nearest3d", "upsample_nearest3d_backward",
      "upsample_trilinear3d", "upsample_trilinear3d_backward",
      // Numbers of lower precision.
      "_fake_quantize_learnable_per_channel_affine",
      "_fake_quantize_learnable_per_channel_affine_backward",
      "_fake_quantize_learnable_per_tensor_affine",
      "_fake_quantize_learnable_per_tensor_affine_backward",
      "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
      "_fused_moving_avg_obs_fq_helper_functional", "_saturate_weight_to_fp16",
      "fake_quantize_per_channel_affine", "fake_quantize_per_channel_affine_cachemask",
      "fake_quantize_per_channel_affine_cachemask_backward", "fake_quantize_per_tensor_affine",
      "fake_quantize_per_tensor_affine_cachemask",
      "fake_quantize_per_tensor_affine_cachemask_backward",
      // Steps of optimizers that write nothing, and comparisons.
      "_amp_foreach_non_finite_check_and_unscale", "_amp_update_scale", "_assert_async",
      "_functional_assert_async", "_fused_adagrad", "_fused_adam", "_fused_adamw", "_fused_sgd",
      "_is_all_true", "_is_any_true", "floor_divide", "isclose"};
  return names;
}

// What their names do not show: they have no form without the write.
constexpr std::array<std::string_view, 22> kUpdates{"_batch_norm_with_update",
                                                    "_fused_moving_avg_obs_fq_helper",
                                                    "_native_batch_norm_legit",
                                                    "batch_norm_update_stats",
                                                    "copy_",
                                                    "fill_",
                                                    "fill_diagonal_",
                                                    "index_put_",
                                                    "index_add_",
                                                    "index_copy_",
                                                    "index_fill_",
                                                    "index_reduce_",
                                                    "masked_fill_",
                                                    "masked_scatter_",
                                                    "rrelu_with_noise",
                                                    "scatter_",
                                                    "scatter_add_",
                                                    "scatter_reduce_",
                                                    "addmm_",
                                                    "cumsum_",
                                                    "cumprod_",
                                                    "zero_"};

// Whole families: the steps of optimizers.
bool is_of_an_optimizer(std::string_view name) {
  return name.starts_with("_foreach_") || name.starts_with("_fused_ada") ||
         name.starts_with("_fused_sgd");
}

bool is_functional(const c10::OperatorHandle& handle, std::string_view name) {
  return handle.hasTag(at::Tag::core) || handle.hasTag(at::Tag::pointwise) ||
         is_of_an_optimizer(name) || functional_operators().contains(name);
}

// A write changes the contents of a tensor that the call is given, not what the tensor is; and it
// does not go to a tensor that is there for results alone, which would be given another size.
bool is_update(const c10::OperatorHandle& handle, std::string_view name) {
  if (handle.hasTag(at::Tag::inplace_view)) return false;
  const auto& arguments = handle.schema().arguments();
  if (std::ranges::any_of(arguments, [](const c10::Argument& a) { return a.is_out(); })) {
    return false;
  }
  if (std::ranges::find(kUpdates, name) != kUpdates.end() || is_of_an_optimizer(name)) return true;
  if (!name.ends_with("_")) return false;
  return handle.hasTag(at::Tag::pointwise) ||
         functional_operators().contains(name.substr(0, name.size() - 1));
}

bool is_permitted(const c10::OperatorHandle& handle) {
  std::string_view name = handle.schema().name();
  if (!name.starts_with(kNamespace)) return false;
  name.remove_prefix(kNamespace.size());
  return written_arguments(handle.schema()).empty() ? is_functional(handle, name)
                                                    : is_update(handle, name);
}

}  // namespace

Status PermittedOperators::check(const Program& program) const {
  for (std::size_t n = 0; n < program.nodes.size(); ++n) REGEN_TRY(check(program, NodeId(n)));
  return {};
}

Status PermittedOperators::check(const Program& program, NodeId node) const {
  const std::string& name = program.nodes[node].op;
  if (std::ranges::find(named_, name) != named_.end()) return {};
  REGEN_ASSIGN(const c10::OperatorHandle handle, find_operator(program, node));
  if (is_permitted(handle)) return {};
  return bad_input(describe(program, node) +
                   ": the operator is not one that a program from a file " +
                   "may call; expected --allow-op " + name + " if you know what it does");
}

}  // namespace regen::execute
